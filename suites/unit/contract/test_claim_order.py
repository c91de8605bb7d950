"""CLAIM-12, 13, 14: ranks share a task's rows, oldest rows first; a meta names its task."""

from __future__ import annotations

from collections import Counter

import pytest

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]


@requirement("CLAIM-12")
def test_ranks_of_one_task_share_its_rows(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    claimed = [
        i
        for rank in (0, 1, 0, 1)
        for i in part.claim("train", batch_size=2, dp_rank=rank).sample_ids
    ]
    expect_equal(Counter(claimed), Counter(IDS), "claims by id over two ranks")


@requirement("CLAIM-12")
def test_one_rank_may_claim_all(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_ids(part.claim("train", dp_rank=1), IDS, "rows of the one rank that asks")


@requirement("CLAIM-12", leans_on=("CLAIM-04",))
def test_a_rank_gets_the_rows_that_another_has_not_claimed(part: PartitionUnderTest) -> None:
    """Planes that claim rows ahead for the next claim of a rank hide them from the others."""
    part.put_labeled(IDS)
    first = part.claim("train", batch_size=2, dp_rank=0).sample_ids
    rest = [i for i in IDS if i not in first]
    got = part.claim("train", batch_size=len(rest), dp_rank=1)
    expect_ids(got, rest, "rows that rank 0 has not claimed")


@requirement("CLAIM-12")
@pytest.mark.parametrize("rank", [0, 3, 7, None])
def test_rows_of_ranks_that_claim_no_more_reach_the_one_that_does(
    part: PartitionUnderTest, rank: int | None
) -> None:
    """Planes that deal rows to the ranks that have claimed keep those of a rank that is gone."""
    for each in range(4):
        expect_equal(part.claim(batch_size=2, dp_rank=each).sample_ids, [], "rows before any put")
    part.put_labeled(IDS)
    claimed = [i for each in range(4) for i in part.claim(batch_size=1, dp_rank=each).sample_ids]
    later = [f"later{n}" for n in range(9)]
    part.put_labeled(later)
    claimed += part.claim_all(batch_size=2, dp_rank=rank)
    due = "claims by id, all but one rank gone"
    expect_equal(Counter(claimed), Counter([*IDS, *later]), due)


@requirement("CLAIM-13")
@pytest.mark.parametrize("ids", [IDS, IDS[::-1]], ids=["sorted", "reversed"])
def test_the_oldest_rows_come_first(part: PartitionUnderTest, ids: list[str]) -> None:
    for sample_id in ids[:4]:
        part.put_labeled([sample_id])
    part.clear(ids[:1])
    part.put_labeled(ids[4:5])  # may reuse the cleared row's slot, but not its position
    order = [part.claim(batch_size=1).sample_ids for _ in range(4)]
    expect_equal(order, [[i] for i in ids[1:5]], "rows in the order they were put")


@requirement("CLAIM-13")
@pytest.mark.parametrize("write", ["overwrite", "column", "tag"])
def test_rows_that_are_written_to_keep_their_place(part: PartitionUnderTest, write: str) -> None:
    """Planes that replace a whole row by another put it behind those that came later."""
    for sample_id in IDS:
        part.put_labeled([sample_id])
    if write == "tag":
        part.put(IDS[:2], [{"stamp": 1}] * 2)
    else:
        part.put_labeled(IDS[:2], "x" if write == "overwrite" else "y", version=1)
    order = [part.claim(batch_size=1).sample_ids for _ in IDS]
    expect_equal(order, [[i] for i in IDS], "rows in the order they were put first")


@requirement("CLAIM-14")
@pytest.mark.parametrize("way", ["at_once", "blocking", "empty"])
def test_the_meta_names_its_partition_task_and_fields(part: PartitionUnderTest, way: str) -> None:
    if way != "empty":
        part.put_labeled(IDS, "x", "y", "z")
    meta = part.claim("train", ["y", "x"], blocking=way == "blocking")
    expect_equal(meta.partition_id, part.id, "partition_id")
    expect_equal(meta.task_name, "train", "task_name")
    expect_equal(list(meta.fields or []), ["y", "x"], "fields")
