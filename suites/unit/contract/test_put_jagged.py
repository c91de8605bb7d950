"""PUT: a jagged column works in torch operations, whichever rows a read selects.

``test_put_values.py`` compares the values of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from rlconform.certify.assertions.expect import ContractViolation, leaning_on
from rlconform.certify.assertions.jagged import expect_whole_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged, random_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import KVBatchMeta

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip


def selections(ids: list[str]) -> Iterator[list[str]]:
    """Yield all ids and, if there are several, all in reverse, the first, and all but the first."""
    yield ids
    if len(ids) > 1:
        yield from (ids[::-1], ids[:1], ids[1:])


def expect_whole_read(part: PartitionUnderTest, ids: list[str]) -> None:
    """Expect both read methods to return these rows as a complete column."""
    expect_whole_column(part.get(ids, "x"), "x")
    try:
        expect_whole_column(part.get_data(KVBatchMeta(part.id, None, ids, fields=["x"])), "x")
    except ContractViolation as violation:
        raise ContractViolation(f"of get_data: {violation.expected}", violation.got) from None


def expect_whole_round_trip(part: PartitionUnderTest, rows: list[torch.Tensor]) -> None:
    """Put the rows as one column, then one by one, and check each column that is read."""
    ids = [f"r{i}" for i in range(len(rows))]
    part.put(ids, x=jagged(rows))
    part.expect_rows(ids, x=rows)
    for chosen in selections(ids):
        expect_whole_read(part, chosen)
    apart = [f"apart{i}" for i in range(len(rows))]
    for sample_id, row in zip(apart, rows, strict=True):
        part.put([sample_id], x=jagged([row]))
    expect_whole_read(part, apart)
    expect_whole_read(part, [apart[0], *ids[1:]])


@requirement("PUT-29", leans_on=("PUT-05",))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_jagged_column_of_any_dtype_works_in_torch(
    part: PartitionUnderTest, dtype: torch.dtype
) -> None:
    expect_whole_round_trip(part, random_rows(dtype, [(n,) for n in (3, 1, 5)]))


@requirement("PUT-29", leans_on=("PUT-05",))
@pytest.mark.parametrize("lengths", [(4,) * 6, (2, 2, 7), (7,), (1, 300, 40)], ids=str)
def test_a_jagged_column_of_any_lengths_works_in_torch(
    part: PartitionUnderTest, lengths: tuple[int, ...]
) -> None:
    expect_whole_round_trip(part, random_rows(torch.int64, [(n,) for n in lengths]))


@requirement("PUT-29", leans_on=("PUT-05",))
def test_each_jagged_column_of_a_batch_works_in_torch(part: PartitionUnderTest) -> None:
    ids = ["r0", "r1", "r2"]
    tokens = random_rows(torch.int64, [(n,) for n in (3, 1, 5)])
    logprobs = random_rows(torch.float32, [(n,) for n in (3, 1, 5)])
    others = random_rows(torch.int64, [(n,) for n in (2, 6, 4)])
    part.put(ids, x=jagged(tokens), y=jagged(logprobs), z=jagged(others))
    for chosen in selections(ids):
        batch = part.get(chosen, "x", "y", "z")
        for field in ("x", "y", "z"):
            expect_whole_column(batch, field)


@requirement("PUT-29", leans_on=("PUT-05",))
def test_a_column_put_partly_dense_works_in_torch(part: PartitionUnderTest) -> None:
    rows = random_rows(torch.float32, [(n,) for n in (4, 4, 3, 6)])
    ids = ["r0", "r1", "r2", "r3"]
    part.put(ids[:2], x=torch.stack(rows[:2]))
    part.put(ids[2:], x=jagged(rows[2:]))
    part.expect_rows(ids, x=rows)
    for chosen in selections(ids):
        expect_whole_read(part, chosen)


@requirement("PUT-29", leans_on=("PUT-06",))
@pytest.mark.parametrize(
    "lengths", [(0, 3, 2), (3, 1, 0), (2, 0, 0, 1), (0,), (0, 0), (0, 0, 0, 4, 5)], ids=str
)
def test_a_jagged_column_with_zero_length_rows_works_in_torch(
    part: PartitionUnderTest, lengths: tuple[int, ...]
) -> None:
    expect_whole_round_trip(part, random_rows(torch.float32, [(n,) for n in lengths]))


@requirement("PUT-29", leans_on=("PUT-07",))
@pytest.mark.parametrize("trailing", [(3,), (2, 4)], ids=str)
@pytest.mark.parametrize("lengths", [(3, 1, 2), (0, 2, 3), (0, 0), (2,)], ids=str)
def test_a_jagged_column_with_trailing_dimensions_works_in_torch(
    part: PartitionUnderTest, lengths: tuple[int, ...], trailing: tuple[int, ...]
) -> None:
    expect_whole_round_trip(part, random_rows(torch.uint8, [(n, *trailing) for n in lengths]))


@requirement("PUT-08", leans_on=("PUT-05",))
@pytest.mark.parametrize("tail", [0, 4], ids=["to_the_end", "before_the_end"])
def test_a_jagged_part_of_a_larger_column_is_exact_or_refused(
    part: PartitionUnderTest, tail: int
) -> None:
    """Its offsets begin beyond the values of rows that are no part of it; torch can't unbind it."""
    values = torch.arange(40)
    offsets = torch.tensor([7, 12, 30, 40 - tail])
    rows = [values[start:end] for start, end in offsets.unfold(0, 2, 1).tolist()]
    ids = ["u0_g0", "u0_g1", "u1_g0"]
    column = torch.nested.nested_tensor_from_jagged(values, offsets)
    try:
        part.put(ids, x=column)
    except Exception:  # noqa: BLE001 - a plane may refuse it with any error
        with leaning_on("PUT-16"):
            part.expect_absent(ids, "x")
        return
    part.expect_rows(ids, x=rows)
    part.expect_rows(ids[::-1], x=rows[::-1])


#: Rows of a large step, and the length of each: as they come, sorted into buckets, or all but one.
STEP = 4352
LENGTHS: dict[str, Callable[[int], int]] = {
    "mixed": lambda n: n * 7 % 13,
    "buckets_of_256": lambda n: n // 256 + 1,
    "buckets_of_1024": lambda n: n // 1024 + 1,
    "falling": lambda n: (STEP - n) // 300,
    "one_long_at_the_end": lambda n: 500 if n == STEP - 1 else 1,
    "one_long_at_the_start": lambda n: 500 if n == 0 else 1,
    "empty_but_one": lambda n: 3 if n == STEP // 2 else 0,
}


@requirement("PUT-05", leans_on=("GET-01",))
@pytest.mark.parametrize("length", LENGTHS.values(), ids=LENGTHS)
def test_the_jagged_rows_of_a_large_step_come_back(
    new_partition: Callable[..., PartitionUnderTest], length: Callable[[int], int]
) -> None:
    """Planes read many rows in parts, and put these together: their lengths differ, or do not."""
    part, ids = new_partition(num_samples=STEP), [f"r{n}" for n in range(STEP)]
    rows = [torch.arange(n, n + length(n)) for n in range(STEP)]
    part.put(ids, x=jagged(rows))
    part.expect_rows(ids, x=rows)
    part.expect_rows(ids[::-1], x=rows[::-1])
