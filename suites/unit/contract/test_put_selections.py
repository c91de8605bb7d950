"""PUT seen through reads of a part of the rows: gaps, many jagged rows, rows without elements.

A backend that keeps ranges, pages or offsets may be right for a whole put and wrong for a part.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.assertions.jagged import expect_whole_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable
from rlconform.wire import stack_or_nest

#: More rows than a backend puts into one page or one range.
MANY = 600


@requirement("PUT-12")
def test_a_field_of_every_second_row_is_produced_for_those_only(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(num_samples=MANY)
    ids = [f"r{n}" for n in range(MANY)]
    part.put_labeled(ids, "x")
    have = ids[::2]
    part.put(have[1::2], y=torch.ones(len(have[1::2])))
    part.put(have[::2], y=torch.ones(len(have[::2])))
    for sample_id in (ids[1], ids[MANY // 2 + 1], ids[-1]):
        expect_unreadable(lambda i=sample_id: part.get([i], "y"), sample_id, "y")
    expect_unreadable(lambda: part.get(ids[:3], "y"), ids[1], "y")
    got = part.claim("train", ["x", "y"], batch_size=len(have)).sample_ids
    expect_equal(sorted(got), sorted(have), "rows that have both fields")
    expect_equal(part.claim("train", ["x", "y"], batch_size=1).sample_ids, [], "further rows")


@requirement("PUT-29", leans_on=("PUT-05",))
@pytest.mark.parametrize("longest", [0, 300, MANY - 1])
def test_a_jagged_column_of_many_rows_works_in_torch(
    new_partition: Callable[..., PartitionUnderTest], longest: int
) -> None:
    part = new_partition(num_samples=MANY)
    ids = [f"r{n}" for n in range(MANY)]
    rows = [torch.full((40 if n == longest else 1 + n % 5,), n) for n in range(MANY)]
    part.put(ids, x=stack_or_nest(rows))
    expect_whole_column(part.get(ids, "x"), "x")
    part.expect_rows(ids, x=rows)


@requirement("PUT-05")
def test_jagged_columns_of_equal_size_keep_their_own_rows(part: PartitionUnderTest) -> None:
    ids = ["r0", "r1", "r2", "r3"]
    columns = {
        field: [torch.arange(n) + base for n in lengths]
        for field, lengths, base in (("x", (5, 1, 2, 4), 0), ("y", (4, 2, 1, 5), 50))
    }
    part.put(ids, x=stack_or_nest(columns["x"]), y=stack_or_nest(columns["y"]))
    part.expect_rows(ids, **columns)
    part.expect_rows(ids[::-1], **{name: rows[::-1] for name, rows in columns.items()})


@requirement("PUT-07")
@pytest.mark.parametrize("trailing", [(3,), (2, 4)], ids=str)
def test_rows_without_elements_keep_their_trailing_dimensions(
    part: PartitionUnderTest, trailing: tuple[int, ...]
) -> None:
    ids = ["r0", "r1", "r2", "r3"]
    rows = [torch.ones(n, *trailing) for n in (0, 2, 0, 3)]
    part.put(ids, x=stack_or_nest(rows))
    part.expect_rows([ids[0], ids[2]], x=[rows[0], rows[2]])
    part.expect_rows([ids[2]], x=[rows[2]])


@requirement("PUT-06")
def test_rows_without_elements_stay_in_place_when_others_go(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    ids = [f"r{n}" for n in range(12)]
    part = new_partition(fields=["x"])
    rows = [torch.full((0 if n % 3 == 0 else 8192 + n,), float(n)) for n in range(12)]
    part.put(ids, x=stack_or_nest(rows))
    gone = [n for n in range(12) if n not in {0, 4, 6, 11}]
    part.clear([ids[n] for n in gone[:4]])
    part.put([ids[n] for n in gone[4:]], x=torch.zeros(len(gone[4:]), 1))
    part.clear([ids[n] for n in gone[4:]])
    kept = [0, 4, 6, 11]
    part.expect_rows([ids[n] for n in kept], x=[rows[n] for n in kept])
    part.expect_rows([ids[4]], x=[rows[4]])


@requirement("PUT-13")
@pytest.mark.parametrize("written", [(1,), (0, 2), (2, 1, 0)], ids=str)
def test_the_meta_of_a_claim_reads_what_was_put_after_it(
    part: PartitionUnderTest, written: tuple[int, ...]
) -> None:
    ids = ["r0", "r1", "r2"]
    part.put_labeled(ids)
    meta = part.claim("train")
    for version in (1, 2):
        part.put_labeled([ids[n] for n in written], version=version)
        batch = part.get_data(meta, ["x"])
        rows = [
            labeled_rows(part.id, [i], "x", version if ids.index(i) in written else 0)[0].tolist()
            for i in meta.sample_ids
        ]
        got = [batch["x"][n].tolist() for n, _ in enumerate(meta.sample_ids)]
        expect_equal(got, rows, "the newest rows of a claim")


@requirement("PUT-13", scattered=False)
def test_the_newest_of_very_many_values_is_read(part: PartitionUnderTest) -> None:
    ids = ["r0", "r1"]
    for n in part.rounds(1100):
        part.put(ids[:1], x=torch.tensor([n]))
    part.put(ids, x=torch.tensor([-1, -2]))
    part.expect_rows(ids, x=[torch.tensor(-1), torch.tensor(-2)])
