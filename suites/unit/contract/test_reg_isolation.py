"""REG-01, REG-04: partitions share no rows, cursors, tags or schemas, however many there are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, expect_equal, expect_objects
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.normalize_metas import tags_by_id
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.refusable_objects import put_unless_refused
from rlconform.contract import Target
from rlconform.wire import object_array

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("REG-04")
def test_partitions_share_no_rows(new_partition: Callable[..., PartitionUnderTest]) -> None:
    train, val = new_partition(), new_partition()
    for part, mode in ((train, "train"), (val, "val")):
        part.put_labeled(IDS, tags=[{"mode": mode} for _ in IDS])
    train.expect_labeled(IDS)
    val.expect_labeled(IDS)
    claimed = train.claim("train")
    expect_ids(claimed, IDS, "rows claimed in one partition")
    expect_equal(tags_by_id(claimed), {i: {"mode": "train"} for i in IDS}, "tags in that partition")
    expect(not val.consumed("train"), "the other partition unconsumed", "consumed")
    expect(train.consumed("train"), "this one consumed, whatever the other holds", "unconsumed")
    train.clear(IDS)
    val.expect_labeled(IDS)
    expect_ids(val.claim("train"), IDS, "rows claimed in the other partition")


@requirement("REG-04")
def test_partitions_share_no_cursors_and_no_tags(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    train, val = new_partition(), new_partition()
    for part, mode in ((train, "train"), (val, "val")):
        part.put_labeled(IDS, tags=[{"mode": mode} for _ in IDS])
    for part in (train, val):
        expect_ids(part.claim("train"), IDS, "rows claimed in each partition")
    train.clear(IDS)
    got = tags_by_id(val.claim("prev_lp"))
    expect_equal(
        got,
        {i: {"mode": "val"} for i in IDS},
        "tags of this partition, after a clear of the other one",
    )


@requirement("REG-04")
def test_registering_a_partition_again_changes_no_other(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    train, val = new_partition(), new_partition()
    for part in (train, val):
        part.put_labeled(IDS)
        expect_ids(part.claim("train"), IDS, "rows claimed in each partition")
    val.clear(IDS)
    val.register()
    expect_equal(
        train.claim_all(), [], "rows claimed again after the other partition was registered again"
    )
    expect(train.consumed("train"), "this partition consumed as before", "unconsumed")
    train.expect_labeled(IDS)


#: What follows another partition's name: separators in the keys of stores, and wildcards.
SUFFIXES = ["_async", "/math", ":math", ".math", "-math", "|math", "*", "%", "0"]


@requirement("REG-04", scattered=False)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_partitions_with_a_common_prefix_are_separate(
    new_partition: Callable[..., PartitionUnderTest], suffix: str
) -> None:
    short = new_partition()
    try:
        long = new_partition(exact=f"{short.id}{suffix}")
    except (ValueError, TypeError):
        return  # only ids are opaque: a plane may refuse such a partition name
    for part in (short, long):
        part.put_labeled(IDS, tags=[{"weight_version": 1}] * 3)
    short.clear(None)
    long.expect_labeled(IDS)
    expect_ids(long.claim("train"), IDS, "rows of a partition whose name begins with the other's")
    short.register()
    again = long.claim_all()
    expect_equal(again, [], "rows claimed again of a partition whose name begins with the other's")


@requirement("REG-04")
def test_partitions_share_no_schema(new_partition: Callable[..., PartitionUnderTest]) -> None:
    train, val = new_partition(), new_partition()
    floats, integers = torch.ones(3, 2), torch.arange(3)
    train.put(IDS, x=floats)
    val.put(IDS, x=integers)
    train.expect_rows(IDS, x=list(floats))
    val.expect_rows(IDS, x=list(integers))


#: Elements of an int64 row that a plane keeps beside its id, in a page, or in a block of its own.
EQUAL = [2, 1 << 10, 1 << 17]


@requirement("REG-04")
@pytest.mark.parametrize("change", ["clear", "clear_all", "overwrite"])
@pytest.mark.parametrize("elements", EQUAL)
def test_equal_rows_of_two_partitions_are_separate(
    new_partition: Callable[..., PartitionUnderTest], elements: int, change: str
) -> None:
    """Planes that store equal rows once free them when one of their owners is gone."""
    train, val = new_partition(), new_partition()
    column = torch.arange(len(IDS) * elements).reshape(len(IDS), elements)
    for part in (train, val):
        part.put(IDS, x=column)
    if change == "overwrite":
        val.put(IDS, x=column + 1)
        val.expect_rows(IDS, x=list(column + 1))
    else:
        val.clear(None if change == "clear_all" else IDS)
    train.expect_rows(IDS, x=list(column))


@requirement("REG-04")
def test_equal_objects_of_two_partitions_are_separate(
    new_partition: Callable[..., PartitionUnderTest], target: Target
) -> None:
    logs = [[{"role": "user", "content": f"{n} " * 1000}] for n, _ in enumerate(IDS)]
    train, val = (new_partition(fields=["log"]) for _ in range(2))
    if put_unless_refused(train, target, IDS, log=object_array(logs)):
        val.put(IDS, log=object_array(logs))
        val.clear(IDS)
        expect_objects(train.get(IDS, "log"), "log", logs)


#: Endings of two partition names that a backend may confuse: they differ only beyond a maximum
#: length, only in case or leading zeros, or have the same CRC-32.
ALIKE = {
    "long": ("_" + "n" * 200 + "_train", "_" + "n" * 200 + "_val"),
    "case": ("_val", "_VAL"),
    "hash": ("plumless", "buckeroo"),
    "numbers": ("_1", "_01"),
    # of which the first, as a pattern or a beginning, fits the second
    "any_character": ("_val_a", "_val-a"),
    "any_text": ("%", "_val"),
    "star": ("*", "_val"),
    "dot": (".val", "-val"),
    "path": ("/val", "/val/a"),
}


@requirement("REG-04")
@pytest.mark.parametrize(("first", "second"), ALIKE.values(), ids=ALIKE)
def test_partitions_of_alike_names_are_separate(
    new_partition: Callable[..., PartitionUnderTest], first: str, second: str
) -> None:
    stem = new_partition(register=False).id
    try:
        train, val = (new_partition(exact=stem + name) for name in (first, second))
    except (ValueError, TypeError):
        return  # only ids are opaque: a plane may refuse such a partition name
    for part, mode in ((train, "train"), (val, "val")):
        part.put_labeled(IDS, tags=[{"mode": mode} for _ in IDS])
    train.expect_labeled(IDS)
    expect_ids(train.claim("train"), IDS, "rows claimed in the partition of one name")
    got = sorted(val.claim("train").sample_ids)
    expect_equal(got, sorted(IDS), "rows claimed in the partition of the other name")
    train.clear(IDS)
    val.expect_labeled(IDS)
    got = tags_by_id(val.claim("prev_lp"))
    expect_equal(got, {i: {"mode": "val"} for i in IDS}, "tags after a clear of the other one")
    train.put_labeled(IDS[:1], version=1)
    train.clear(None)
    val.expect_labeled(IDS)


#: Partitions of which none has rows yet, as of a run with one for each environment.
WAITING = 130


@requirement("REG-01", leans_on=("CLAIM-02", "STAT-01"))
def test_many_partitions_may_wait_for_their_first_rows(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Planes that keep idle partitions for some time forget the tasks of the first ones."""
    parts = [new_partition(num_samples=2) for _ in range(WAITING)]
    for number, part in enumerate(parts):
        part.put_labeled(IDS[:2], tags=[{"partition": number}] * 2)
        got = tags_by_id(part.claim("train"))
        due = {i: {"partition": number} for i in IDS[:2]}
        expect_equal(got, due, f"rows and tags of partition {number} of {WAITING}")
        expect(part.consumed("train"), f"partition {number} of {WAITING} consumed", "False")
    for part in parts[:: WAITING // 10]:
        part.expect_labeled(IDS[:2])


#: Partitions that are used in turn; planes may keep the state of the latest 64, 100 or 256 only.
IN_TURN = 300


@requirement("REG-04", leans_on=("CLAIM-02", "STAT-01", "TAG-01"))
def test_partitions_that_are_used_in_turn_keep_what_was_put_and_claimed(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Planes that keep the state of the latest partitions must find that of the others again."""
    parts = [new_partition(num_samples=2)]
    for number in parts[0].rounds(IN_TURN, time_share=1 / 3):
        part = parts[number]
        part.put_labeled(IDS[:2], tags=[{"partition": number}] * 2)
        expect_ids(part.claim("train"), IDS[:2], f"rows of partition {number}")
        parts.append(new_partition(num_samples=2))
    *parts, _ = parts
    for number in parts[0].rounds(len(parts), time_share=1 / 3):
        part, what = parts[number], f"partition {number} after {len(parts) - 1} others"
        claimed = part.claim("train", batch_size=2).sample_ids
        expect_equal(claimed, [], f"rows claimed again in {what}")
        expect(part.consumed("train"), f"{what} consumed", "False")
        due = {i: {"partition": number} for i in IDS[:2]}
        expect_equal(tags_by_id(part.claim("prev_lp")), due, f"rows and tags of {what}")
        part.expect_labeled(IDS[:2])
