"""PUT with larger rows and more columns than GRPO needs, which exceed limits of backends.

A backend that pages, cuts, hashes or counts may be right up to a limit and wrong above it.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect_column, expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.repeated_calls import MANY, TIME_SHARE
from rlconform.contract import KVBatchMeta
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: Bytes of a large row, which are no multiple of a page, a block or a message.
LARGE_ROW = (5 << 20) + 3

#: The largest number of elements for which float32 holds every offset exactly.
FLOAT32_EXACT = 1 << 24


@requirement("PUT-04")
def test_rows_of_several_messages_come_back(part: PartitionUnderTest) -> None:
    rows = labeled_rows(part.id, IDS[:2], "x", width=LARGE_ROW)
    rows[1][-1] = 7  # the last byte counts too
    part.put(IDS[:2], x=torch.stack(rows))
    part.expect_rows(IDS[:2], x=rows)
    part.expect_rows(IDS[1:2], x=rows[1:])


@requirement("PUT-05")
def test_a_jagged_column_of_many_elements_keeps_its_rows_apart(part: PartitionUnderTest) -> None:
    lengths = (FLOAT32_EXACT + 1, 2, 1)
    rows = [torch.full((n,), index, dtype=torch.uint8) for index, n in enumerate(lengths)]
    part.put(IDS, x=stack_or_nest(rows))
    part.expect_rows(IDS, x=rows)
    part.expect_rows(IDS[::-1], x=rows[::-1])


#: Values with which frameworks pad, by dtype.
PADDING = {
    torch.int64: (0, -1, -100, torch.iinfo(torch.int64).min, torch.iinfo(torch.int64).max),
    torch.float32: (0.0, -1.0, -100.0, float("-inf"), float("nan")),
    torch.bool: (False, True),
}


@requirement("PUT-05")
@pytest.mark.parametrize("dtype", PADDING, ids=str)
def test_rows_that_begin_or_end_like_padding_keep_their_length(
    part: PartitionUnderTest, dtype: torch.dtype
) -> None:
    values = PADDING[dtype]
    rows = [torch.tensor([value] * n, dtype=dtype) for value in values for n in (1, 3)]
    rows += [torch.tensor([v, w, v], dtype=dtype) for v in values for w in values]
    ids = [f"r{n}" for n in range(len(rows))]
    part.put(ids, x=stack_or_nest(rows))
    part.expect_rows(ids, x=rows)
    part.expect_rows_by_meta(ids[::-1], x=rows[::-1])


@requirement("PUT-11")
def test_many_fields_put_at_once_are_read_at_once(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    fields = [f"f{n}" for n in range(64)]
    part = new_partition(fields=fields)
    part.put_labeled(IDS, *fields)
    part.expect_labeled(IDS[::-1], *fields)
    expect_ids(part.claim("train", fields), IDS, "rows that have all 64 fields")


@requirement("PUT-04", leans_on=("TAG-06",))
def test_lengths_in_tags_trim_no_dense_column(part: PartitionUnderTest) -> None:
    rows = torch.arange(24.0).reshape(3, 8) + 1
    masks = torch.ones(3, 8, 2, dtype=torch.int64)
    for lengths in ((3, 8, 1), (2, 5, 4)):
        part.put(IDS, [{"input_lengths": n} for n in lengths], x=rows, y=masks)
        part.expect_rows(IDS, x=list(rows), y=list(masks))
    meta = part.claim("train", ["x", "y"])
    by_id = dict(zip(IDS, rows, strict=True))
    expect_column(part.get_data(meta), "x", [by_id[i] for i in meta.sample_ids])
    known = KVBatchMeta(part.id, "train", IDS, ["x"], sequence_lengths=[2, 5, 4])
    expect_column(part.get_data(known), "x", list(rows))


@requirement("PUT-01", scattered=False)
def test_large_columns_of_odd_sizes_come_back_together(part: PartitionUnderTest) -> None:
    """A plane may read all columns into one piece of memory, each at a rounded place."""
    ids = ["r0", "r1", "r2"]
    width = 100_001  # 300,003 bytes a column of bytes, which no alignment divides
    columns = {
        name: torch.arange(3 * width).remainder(modulus).to(torch.uint8).reshape(3, width)
        for name, modulus in (("x", 251), ("y", 241), ("z", 239))
    }
    part.put(ids, **columns)
    part.expect_rows(ids, **{name: list(rows) for name, rows in columns.items()})


@requirement("PUT-13", leans_on=("TAG-03",), scattered=False)
def test_a_row_that_is_put_very_often_has_its_newest_values(part: PartitionUnderTest) -> None:
    """Planes that number the versions of a value may run out of numbers."""
    tags = [{"v": n} for n, _ in enumerate(IDS)]
    part.put_labeled(IDS, tags=tags)
    for n in part.rounds(MANY, TIME_SHARE):
        part.put(IDS[2:], [{"v": 2, "round": n}], w=torch.tensor([n]))
        part.expect_rows(IDS[2:], w=[torch.tensor(n)])
    part.expect_labeled(IDS)
    claimed = part.claim()
    expect_ids(claimed, IDS, "rows claimed once, however often they are put")
    expect_equal(tags_by_id(claimed)[IDS[2]], {"v": 2, "round": n}, "the newest tags")
