"""CLEAR-03, CLEAR-04: an id that was cleared and is put again has nothing of its old row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect_equal,
    expect_objects,
    is_rejected,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import (
    TASKS,
    PartitionUnderTest,
    expect_ids,
    expect_unreadable,
)
from rlconform.certify.scenarios.refusable_objects import put_unless_refused
from rlconform.contract import Target
from rlconform.wire import object_array

IDS = ["u0_g0", "u0_g1", "u1_g0", "u1_g1"]


@requirement("CLEAR-04", leans_on=("CLAIM-01",))
def test_a_row_cleared_before_it_was_ready_is_not_completed_by_its_last_field(
    part: PartitionUnderTest,
) -> None:
    """Planes that remember what a row still lacks take a new row of the id for the old one."""
    ids = ["u0_g0", "u0_g1"]
    part.put_labeled(ids, "x")
    expect_equal(part.claim("train", ["x", "y"]).sample_ids, [], "rows that lack y")
    part.clear(ids[:1])
    part.put_labeled(ids[:1], "y", version=1)
    expect_equal(part.claim("train", ["x", "y"]).sample_ids, [], "a new row with y alone")
    part.put_labeled(ids[:1], "x", version=1)
    got = part.claim("train", ["x", "y"]).sample_ids
    expect_equal(got, ids[:1], "rows with both fields")


def clear_all(part: PartitionUnderTest, way: str) -> None:
    """Clear the rows by their ids, or everything, after which the partition is registered again."""
    if way == "by_ids":
        part.clear(IDS)
        return
    part.clear(None)
    part.register()  # clearing everything may end the registration


@requirement("CLEAR-04")
@pytest.mark.parametrize("way", ["by_ids", "by_none"])
def test_a_cleared_id_can_be_put_again_without_its_old_data(
    part: PartitionUnderTest, way: str
) -> None:
    part.put_labeled(IDS, "x", "y", tags=[{"old": i} for i in IDS])
    part.claim("train")
    clear_all(part, way)
    part.put_labeled(IDS, "x", version=1, tags=[{"new": i} for i in IDS])
    part.expect_labeled(IDS, "x", version=1)
    expect_unreadable(lambda: part.get(IDS[:1], "y"), IDS[0], "y")
    meta = part.claim("train")
    expect_ids(meta, IDS, "ids that were put again, claimable")
    expect_equal(tags_by_id(meta), {i: {"new": i} for i in IDS}, "tags after the clear")


@requirement("CLEAR-04", leans_on=("CLAIM-01",))
@pytest.mark.parametrize("way", ["by_ids", "by_none", "by_none_alone"])
def test_a_cleared_id_that_gets_tags_alone_has_nothing_of_its_old_row(
    part: PartitionUnderTest, way: str
) -> None:
    """Planes that only mark rows as cleared must not take the mark away with any put."""
    part.put_labeled(IDS, tags=[{"old": i} for i in IDS])
    tags = [{"new": i} for i in IDS]
    if way != "by_none_alone":
        clear_all(part, way)
        part.put(IDS, tags)
    else:
        part.clear(None)
        if is_rejected(lambda: part.put(IDS, tags)):  # clearing everything ended the registration
            part.register()
            part.put(IDS, tags)
    part.expect_absent(IDS)
    expect_equal(part.claim("train").sample_ids, [], "rows with new tags alone that are claimed")
    part.put_labeled(IDS, version=1)
    got = tags_by_id(part.claim("train"))
    expect_equal(got, {i: {"new": i} for i in IDS}, "tags put alone after the clear")


@requirement("CLEAR-04", leans_on=("CLAIM-02",))
def test_unclaimed_rows_cleared_and_put_again_are_claimed_once(part: PartitionUnderTest) -> None:
    """Planes that claim rows ahead for the next claim return such a row as the old and the new."""
    part.put_labeled(IDS)
    first = part.claim(batch_size=1).sample_ids
    rest = [i for i in IDS if i not in first]
    part.clear(rest)
    part.put_labeled(rest, version=1)
    got = sorted(part.claim_all())
    expect_equal(got, sorted(rest), "rows put again that were cleared after an earlier claim")


@requirement("CLEAR-04")
@pytest.mark.parametrize("again", [True, False], ids=["same_ids", "other_ids"])
def test_large_rows_put_in_place_of_cleared_ones_are_read(
    part: PartitionUnderTest, again: bool
) -> None:
    """Planes that keep what was read by its address in memory find the rows cleared there."""
    for version in range(3):
        ids = IDS if again else [f"{sample_id}_{version}" for sample_id in IDS]
        rows = labeled_rows(part.id, ids, "x", version, 1 << 18)
        part.put(ids, x=torch.stack(rows))
        part.expect_rows(ids, x=rows)
        part.clear(ids)


@requirement("CLEAR-04")
def test_a_cleared_id_can_be_put_again_with_larger_rows(part: PartitionUnderTest) -> None:
    for version, width in enumerate((32, 1 << 18, 32)):
        rows = labeled_rows(part.id, IDS, "x", version, width)
        part.put(IDS, x=torch.stack(rows))
        part.expect_rows(IDS, x=rows)
        part.clear(IDS)


@requirement("CLEAR-04")
@pytest.mark.parametrize("by", ["ids", "none", "register"])
def test_a_field_can_have_another_dtype_after_a_clear(part: PartitionUnderTest, by: str) -> None:
    part.put(IDS, x=torch.ones(4, 2))
    part.clear(None if by == "none" else IDS)
    if by != "ids":  # clearing everything may end the registration
        part.register()
    others, integers = [f"next_{i}" for i in IDS], torch.arange(4)
    part.put(others, x=integers)
    part.expect_rows(others, x=list(integers))
    expect_ids(part.claim("train"), others, "rows of the next step, of another dtype")


@requirement("CLEAR-04")
def test_an_id_that_is_put_again_has_none_of_its_old_objects(
    new_partition: Callable[..., PartitionUnderTest], target: Target
) -> None:
    part, ids = new_partition(fields=["x", "log"]), IDS[:3]
    if put_unless_refused(part, target, ids, log=object_array(["a", {"n": 1}, None])):
        part.clear(ids)
        part.put_labeled(ids)
        expect_unreadable(lambda: part.get(ids[:1], "log"), ids[0], "log")
        part.put(ids, log=object_array(["c", "d", {}]))
        expect_objects(part.get(ids, "log"), "log", ["c", "d", {}])


@requirement("CLEAR-04")
@pytest.mark.parametrize("before", ["never_put", "cleared_already"])
def test_an_id_cleared_while_absent_can_be_put_and_claimed(
    part: PartitionUnderTest, before: str
) -> None:
    if before == "cleared_already":
        part.put_labeled(IDS)
        part.claim("train")
        part.clear(IDS)
    part.clear(IDS)
    part.put_labeled(IDS, version=1, tags=[{"n": n} for n, _ in enumerate(IDS)])
    meta = part.claim("train")
    expect_ids(meta, IDS, "ids that were cleared while they were absent, claimable")
    expect_equal(tags_by_id(meta), {i: {"n": n} for n, i in enumerate(IDS)}, "their tags")
    part.expect_labeled(IDS, version=1)


@requirement("CLEAR-03", leans_on=("REG-08", "CLAIM-02"))
@pytest.mark.parametrize("more", [False, True], ids=["same_tasks", "one_more_task"])
def test_none_drops_rows_put_before_the_partition_was_registered_again(
    part: PartitionUnderTest, more: bool
) -> None:
    """Planes that note which rows a process puts must keep the note as they keep the rows."""
    part.put_labeled(IDS[:2], tags=[{"step": 1}] * 2)
    part.register(tasks=[*TASKS, "ref_lp"] if more else TASKS)
    if is_rejected(lambda: part.expect_labeled(IDS[:2])):
        return  # the registration dropped the rows, which REG-08 judges
    part.put_labeled(IDS[2:])
    part.clear(None)
    part.expect_absent(IDS)
    part.register()  # clearing everything may end the registration
    part.put_labeled(IDS[2:], version=1)
    left = part.claim("train", batch_size=len(IDS)).sample_ids
    expect_equal(left, IDS[2:], "rows claimed after everything was cleared")
