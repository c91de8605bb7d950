"""PUT-13, PUT-23: a second put of a field replaces the rows or is refused, and corrupts no row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    leaning_on,
    row_difference,
    rows_in,
    show_row,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_row, labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: The first and the second put: a dtype, and the length of each row.
Shape = tuple[torch.dtype, tuple[int, int, int]]

LARGE = 1 << 18

OVERWRITES: dict[str, tuple[Shape, Shape]] = {
    "values": ((torch.float32, (8, 8, 8)), (torch.float32, (8, 8, 8))),
    "longer": ((torch.float32, (8, 8, 8)), (torch.float32, (21, 21, 21))),
    "shorter": ((torch.float32, (21, 21, 21)), (torch.float32, (8, 8, 8))),
    "to_jagged": ((torch.float32, (8, 8, 8)), (torch.float32, (9, 30, 0))),
    "from_jagged": ((torch.float32, (9, 30, 0)), (torch.float32, (8, 8, 8))),
    "dtype": ((torch.float32, (8, 8, 8)), (torch.int32, (8, 8, 8))),
    "dtype_and_length": ((torch.float32, (8, 8, 8)), (torch.bfloat16, (20, 20, 20))),
    "lengths_permuted": ((torch.float32, (9, 30, 5)), (torch.float32, (30, 5, 9))),
    "large_lengths_permuted": (
        (torch.uint8, (LARGE, LARGE + 8, LARGE - 8)),
        (torch.uint8, (LARGE - 8, LARGE, LARGE + 8)),
    ),
    "tiny_to_large": ((torch.uint8, (32, 32, 32)), (torch.uint8, (LARGE, LARGE, LARGE))),
    "large_to_tiny": ((torch.uint8, (LARGE, LARGE, LARGE)), (torch.uint8, (32, 32, 32))),
}


def rows_of_shape(part: PartitionUnderTest, shape: Shape, version: int) -> list[torch.Tensor]:
    """Return rows whose bytes encode partition, id, field and version, if they fit the shape."""
    dtype, lengths = shape
    sizes = [length * dtype.itemsize for length in lengths]
    return [
        labeled_row(part.id, sample_id, "x", version, size)[:size].view(dtype)
        for sample_id, size in zip(IDS, sizes, strict=True)
    ]


@requirement("PUT-13")
@pytest.mark.parametrize(("first", "second"), OVERWRITES.values(), ids=OVERWRITES)
def test_the_newest_value_is_read(part: PartitionUnderTest, first: Shape, second: Shape) -> None:
    versions = [rows_of_shape(part, shape, n) for n, shape in enumerate((first, second))]
    for rows in (*versions, versions[0]):  # the first value again, as a retry would put it
        part.put(IDS, x=stack_or_nest(rows))
        part.expect_rows(IDS, x=rows)


@requirement("PUT-13", leans_on=("PUT-04",))
@pytest.mark.parametrize("again", [False, True], ids=["other_rows", "same_rows"])
def test_rows_of_equal_size_keep_their_own_shapes(part: PartitionUnderTest, again: bool) -> None:
    """Planes that know a field's row shape by its name, dtype and bytes mix up these puts."""
    stored: dict[str, torch.Tensor] = {}
    for n, shape in enumerate([(4, 6), (6, 4), (24,), (2, 3, 4), (24, 1)]):
        ids = IDS if again else [f"{sample_id}_{n}" for sample_id in IDS]
        rows = torch.arange(n, n + len(ids) * 24).to(torch.int32).reshape(-1, *shape)
        try:
            part.put(ids, x=rows)
        except ContractViolation:
            raise
        except Exception:  # noqa: BLE001 - a plane may refuse another row shape with any error
            continue
        stored |= zip(ids, rows, strict=True)
        part.expect_rows(ids, x=list(rows))
    for sample_id, row in stored.items():
        part.expect_rows([sample_id], x=[row])


@requirement("PUT-13")
@pytest.mark.parametrize("read_before", [True, False], ids=["read_before", "not_read_before"])
@pytest.mark.parametrize("count", [3, 64])
def test_a_claimed_row_that_is_overwritten_reads_as_its_newest_value(
    part: PartitionUnderTest, count: int, read_before: bool
) -> None:
    """Planes may fetch the rows of a claim ahead of their first read."""
    ids = [f"r{n}" for n in range(count)]
    part.put_labeled(ids)
    meta = part.claim("train", batch_size=count)
    if read_before:
        expect_column(part.get_data(meta), "x", labeled_rows(part.id, meta.sample_ids, "x"))
    part.put_labeled(ids, version=1)
    newer = labeled_rows(part.id, meta.sample_ids, "x", 1)
    expect_column(part.get_data(meta), "x", newer)


@requirement("PUT-13")
@pytest.mark.parametrize("width", [8, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("again", [True, False], ids=["same_ids", "other_ids"])
def test_a_buffer_that_is_filled_again_is_stored_anew(
    part: PartitionUnderTest, width: int, again: bool
) -> None:
    """Planes that send each tensor or address once take a buffer for what it held before."""
    buffer = torch.zeros(len(IDS), width, dtype=torch.uint8)
    for version in range(3):
        ids = IDS if again else [f"{sample_id}_{version}" for sample_id in IDS]
        buffer.fill_(version)
        part.put(ids, x=buffer)
        part.expect_rows(ids, x=[torch.full((width,), version, dtype=torch.uint8)] * len(ids))


@requirement("PUT-13")
def test_one_row_is_replaced_and_the_others_are_kept(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.put_labeled(IDS[1:2], version=1)
    part.expect_labeled(IDS[1:2], version=1)
    part.expect_labeled([IDS[0], IDS[2]])


@requirement("PUT-13")
def test_reads_during_overwrites_return_the_old_value_or_the_new(part: PartitionUnderTest) -> None:
    rounds = 60
    done = [0]
    part.put_labeled(IDS)

    def overwrite() -> None:
        for version in range(1, rounds):
            part.put_labeled(IDS, version=version)
            done[0] = version

    writer = BackgroundCall(overwrite, "the writer")
    over = False
    while not over:
        over = writer.finished.is_set()
        oldest = done[0]
        rows = rows_in(part.get(IDS, "x"), "x")  # the rows exist all the time: an error is wrong
        expect(len(rows) == len(IDS), f"{len(IDS)} rows", f"{len(rows)} rows")
        for sample_id, row in zip(IDS, rows, strict=True):
            _expect_version(part, sample_id, row, range(oldest, rounds))
    writer.result(part.timeouts.operation)
    part.expect_labeled(IDS, version=rounds - 1)


def _expect_version(
    part: PartitionUnderTest, sample_id: str, row: torch.Tensor, versions: Sequence[int]
) -> None:
    """Expect the sample's row in one of ``versions``; earlier versions were replaced."""
    allowed = (labeled_row(part.id, sample_id, "x", version) for version in versions)
    expect(
        any(row_difference(row, version) is None for version in allowed),
        f"x of {sample_id!r} in version {versions[0]}, whose put had returned, or a later one",
        show_row(row),
    )


TWO_DTYPES = {
    "int64_then_float32": (torch.arange(4), torch.arange(4) + 0.5),
    "float32_then_int64": (torch.arange(4) + 0.5, torch.arange(4) + 2**40),
    "bfloat16_then_float32": (torch.ones(4).bfloat16(), torch.arange(4) + 1e-7),
    "bfloat16_then_float16": (torch.ones(4).bfloat16() * 3, torch.arange(4).half() + 0.0625),
    "uint8_then_bool": (torch.tensor([0, 1, 7, 255]).byte(), torch.tensor([0, 1, 1, 0]).bool()),
    "bool_then_uint8": (torch.tensor([0, 1, 1, 0]).bool(), torch.tensor([0, 1, 7, 255]).byte()),
    "int8_then_uint8": (torch.arange(-2, 2).char(), torch.tensor([0, 1, 127, 255]).byte()),
}


@requirement("PUT-23")
@pytest.mark.parametrize("known", [False, True], ids=["new_rows", "rows_of_another_field"])
@pytest.mark.parametrize(("first", "second"), TWO_DTYPES.values(), ids=TWO_DTYPES)
def test_rows_of_two_dtypes_are_never_cast(
    part: PartitionUnderTest, first: torch.Tensor, second: torch.Tensor, known: bool
) -> None:
    if known:
        part.put(["first", "second"], w=torch.ones(2))
    part.put(["first"], x=first.reshape(1, 4))
    try:
        part.put(["second"], x=second.reshape(1, 4))
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse with any error
        part.expect_absent(["second"])
    else:
        part.expect_rows(["second"], x=[second])  # the put was accepted, so the row is readable
        _expect_not_cast(part, [first, second])
    part.expect_rows(["first"], x=[first])


@requirement("PUT-23")
@pytest.mark.parametrize(("first", "second"), TWO_DTYPES.values(), ids=TWO_DTYPES)
def test_an_overwrite_of_some_rows_in_another_dtype_is_never_cast(
    part: PartitionUnderTest, first: torch.Tensor, second: torch.Tensor
) -> None:
    part.put(["first", "second"], x=torch.stack([first, first]))
    try:
        part.put(["second"], x=second.reshape(1, 4))
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse with any error
        part.expect_rows(["first", "second"], x=[first, first])
    else:
        part.expect_rows(["second"], x=[second])
        _expect_not_cast(part, [first, second])
        part.expect_rows(["first"], x=[first])


@requirement("PUT-23")
def test_a_put_of_another_dtype_is_stored_whole_or_not_at_all(part: PartitionUnderTest) -> None:
    part.put(["first"], x=torch.arange(4).reshape(1, 4))
    try:
        part.put(["second"], w=torch.ones(1), x=torch.ones(1, 4))
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse with any error
        part.expect_absent(["second"], "w")
    else:
        part.expect_rows(["second"], w=[torch.tensor(1.0)], x=[torch.ones(4)])


@requirement("PUT-23", leans_on=("PUT-16",))
@pytest.mark.parametrize(
    "order", [("w", "x"), ("x", "w"), ("new", "x"), ("x", "new")], ids="_".join
)
def test_an_overwrite_that_is_refused_for_one_column_changes_no_other(
    part: PartitionUnderTest, order: tuple[str, str]
) -> None:
    """Planes that undo a refused put by deleting what it created leave what it overwrote.

    To add a column may end what a plane could undo.
    """
    ids = ["first", "second", "third"]
    old = {"w": torch.arange(3.0), "x": torch.arange(3)}
    tags = {sample_id: {"v": n} for n, sample_id in enumerate(ids)}
    part.put(ids, list(tags.values()), **old)
    new = {"w": torch.arange(3.0)[1:] + 10, "x": torch.ones(2), "new": torch.ones(2, 3)}
    try:
        part.put(ids[1:], [{"v": 9, "new": True}] * 2, **{name: new[name] for name in order})
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse with any error
        part.expect_rows(ids, **{name: list(column) for name, column in old.items()})
        with leaning_on("PUT-16"):
            expect_equal(tags_by_id(part.claim("train")), tags, "tags as before the refused put")
    else:
        part.expect_rows(ids[1:], **{name: list(new[name]) for name in order})


def _expect_not_cast(part: PartitionUnderTest, rows: list[torch.Tensor]) -> None:
    """Expect a read of both rows to return each row exactly as put, or to be refused."""
    try:
        batch = part.get(["first", "second"], "x")
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - see above
        return
    expect_column(batch, "x", rows)


@requirement("PUT-13")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [("input_lengths", torch.int64), ("total_reward", torch.float32), ("m", torch.int64)],
)
def test_a_column_named_like_a_tag_has_its_newest_value(
    new_partition: Callable[..., PartitionUnderTest], name: str, dtype: torch.dtype
) -> None:
    """Planes that serve such a column from the tags that they hold anyway return the old value."""
    part, ids = new_partition(fields=[name]), ["a_g0", "a_g1"]
    old, new = (torch.tensor(values, dtype=dtype) for values in ([9, 7], [5, 7]))
    part.put(ids, [{name: value} for value in old.tolist()], **{name: old})
    part.put(ids, **{name: new})
    part.expect_rows(ids, **{name: list(new)})
    part.put(ids, [{name: value} for value in old.tolist()])
    part.expect_rows(ids, **{name: list(new)})


@requirement("PUT-01")
@pytest.mark.parametrize("together", [True, False], ids=["in one put", "later"])
def test_a_tag_named_like_a_column_is_no_column(part: PartitionUnderTest, together: bool) -> None:
    rewards = torch.tensor([1.0, 2.0])
    tags: list[dict[str, Any]] = [{"x": -0.5}, {"x": 0.5}]
    part.put(["a_g0", "a_g1"], tags if together else None, x=rewards)
    if not together:
        part.put(["a_g0", "a_g1"], tags)
    part.expect_rows(["a_g0", "a_g1"], x=list(rewards))
    by_id = tags_by_id(part.claim("train", batch_size=2))
    expect_equal([by_id[i]["x"] for i in ("a_g0", "a_g1")], [-0.5, 0.5], "tags")
