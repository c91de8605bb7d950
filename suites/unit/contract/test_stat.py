"""STAT: check_consumption_status returns True exactly when every row was claimed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.assertions.expect import ContractViolation, expect, is_rejected
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_step import STEP_ROWS, put_large_step
from rlconform.certify.scenarios.partition import UNDECLARED, PartitionUnderTest

IDS = ["u0_g0", "u0_g1", "u1_g0"]


def expect_status(part: PartitionUnderTest, expected: bool, when: str, *tasks: str) -> None:
    got = part.consumed(*tasks)
    expect(got is expected, f"check_consumption_status {expected} {when}", str(got))


@requirement("STAT-01")
def test_true_once_every_task_has_every_row(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.claim("train", batch_size=2)
    expect_status(part, False, "with a row unclaimed")
    part.claim("train", batch_size=1)
    expect_status(part, True, "with every row claimed")
    expect_status(part, False, "for a second task that claimed nothing", "train", "prev_lp")
    part.claim("prev_lp")
    expect_status(part, True, "with every row claimed by both tasks", "train", "prev_lp")


@requirement("STAT-01")
def test_false_until_the_last_row_of_a_large_step_is_claimed(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = put_large_step(new_partition)
    part.claim(batch_size=STEP_ROWS - 2)
    for left in (2, 1):
        expect_status(part, False, f"with {left} of {STEP_ROWS} rows unclaimed")
        part.claim(batch_size=1)
    expect_status(part, True, "with every row claimed")


@requirement("STAT-01")
def test_false_again_when_more_rows_come(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2])
    part.claim("train")
    expect_status(part, True, "with every row claimed")
    part.put_labeled(IDS[2:])
    expect_status(part, False, "after one more row")


@requirement("STAT-01")
@pytest.mark.parametrize("again", [IDS[:2], ["new_g0", "new_g1"]], ids=["same_ids", "new_ids"])
def test_false_for_new_rows_after_a_clear(part: PartitionUnderTest, again: list[str]) -> None:
    part.put_labeled(IDS)
    part.claim("train")
    part.clear(IDS)
    for _ in range(2):
        part.put_labeled(again, version=1)
        expect_status(part, False, "for new rows after every earlier one was cleared")
        part.clear(again)
        part.register()


@requirement("STAT-01")
def test_claimed_rows_that_were_cleared_do_not_count_for_others(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.clear(part.claim("train", batch_size=2).sample_ids)
    expect_status(part, False, "with a row unclaimed, after claimed ones were cleared")
    part.claim("train")
    expect_status(part, True, "with every row that is left claimed")


@requirement("STAT-01", leans_on=("REG-02",))
def test_rows_of_undeclared_fields_count_too(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:1])
    part.put_labeled(IDS[1:], UNDECLARED)
    try:
        part.get(IDS[1:], UNDECLARED)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - the rows were dropped, which REG-02 checks
        return
    part.claim("train")
    expect_status(part, False, "with unclaimed rows, of a field that nobody declared")
    part.claim("train", [UNDECLARED])
    expect_status(part, True, "with those claimed too")


@requirement("STAT-03")
def test_never_true_for_a_task_that_claimed_nothing(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_status(part, False, "for a task that claimed nothing", "prev_lp")


@requirement("STAT-03")
@pytest.mark.parametrize("rows", ["claimed", "cleared", "none"])
@pytest.mark.parametrize("asked", [["trian"], ["train", "trian"], ["trian", "train"]], ids="-".join)
def test_never_true_for_an_unknown_task(
    part: PartitionUnderTest, asked: list[str], rows: str
) -> None:
    if rows != "none":
        part.put_labeled(IDS)
        part.claim("train")
    if rows == "cleared":
        part.clear(IDS)
    try:
        got = part.consumed(*asked)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - an error of any type is right
        return
    if got:
        raise ContractViolation("False or an error for an unknown task", "True")


@requirement("STAT-04")
def test_false_where_nothing_was_produced(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    part = new_partition(earlier_rows=False)  # with them the status is True
    expect_status(part, False, "before the first row")
    part.put(IDS, [{"std": 0.0}] * 3)
    expect_status(part, False, "with tags and no row")


@requirement("STAT-05")
def test_cleared_rows_do_not_count(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    claimed = part.claim("train", batch_size=2).sample_ids
    part.clear([i for i in IDS if i not in claimed])
    expect_status(part, True, "once the unclaimed row was cleared")


@requirement("STAT-05")
def test_clearing_rows_with_tags_only_counts_for_nothing(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.put(["tags0", "tags1"], [{"std": 0.0}, {"std": 1.0}])
    part.claim("train", batch_size=1)
    part.clear(["tags0", "tags1"])
    expect_status(part, False, "with two rows unclaimed, after rows with tags only were cleared")
    part.claim_all()
    expect_status(part, True, "with every produced row claimed")


@requirement("STAT-05")
def test_rows_with_tags_only_do_not_count(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.put(["tags_only"], [{"std": 0.0}])
    part.claim_all()
    expect_status(part, True, "with every produced row claimed")


@requirement("STAT-01")
def test_false_after_claimed_rows_were_replaced_by_as_many(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.claim("train")
    expect_status(part, True, "with every row claimed")
    part.put_labeled(["new_g0"])
    part.clear(IDS[:1])
    expect_status(part, False, "with a claimed row replaced by a new one")
    part.clear(IDS[1:])
    part.put_labeled(["new_g1", "new_g2"])
    expect_status(part, False, "with every claimed row replaced by a new one")


@requirement("STAT-05")
def test_an_id_cleared_twice_takes_no_other_row_off(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.claim("train", batch_size=2)
    try:
        part.clear([IDS[0], IDS[0]])
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - a plane may refuse it
        part.clear([IDS[0]])
    part.clear([IDS[0]])
    left = part.claim("prev_lp").sample_ids
    expect(len(left) == 2, "two rows left", str(left))
    expect_status(part, True, "for a task that claimed both rows", "prev_lp")
    part.put_labeled(["new_g0"])
    expect_status(part, False, "with a row unclaimed, after an id was cleared twice", "prev_lp")


@requirement("STAT-01")
def test_false_again_when_rows_that_had_only_tags_get_fields(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:1])
    part.put(IDS[1:2], tags=[{"v": 1}])
    part.claim("train", batch_size=1)
    expect_status(part, True, "while the other row has only tags", "train")
    part.put_labeled(IDS[1:2])
    expect_status(part, False, "when that row has a field, unclaimed", "train")


@requirement("STAT-03")
@pytest.mark.parametrize("claims", ["lp", "lp_ref", "LP"])
def test_a_task_whose_name_is_alike_has_a_status_of_its_own(
    new_partition: Callable[..., PartitionUnderTest], claims: str
) -> None:
    tasks = ["lp", "lp_ref", "LP"]
    part = new_partition(tasks=tasks)
    part.put_labeled(IDS)
    part.claim(claims, batch_size=len(IDS))
    for task in tasks:
        expect_status(part, task == claims, f"when {claims!r} alone has claimed all rows", task)


@requirement("STAT-03")
@pytest.mark.parametrize("separator", [":", "/", "_", "|", "."])
def test_partition_and_task_names_that_join_alike_share_no_status(
    new_partition: Callable[..., PartitionUnderTest], separator: str
) -> None:
    short = new_partition(tasks=[f"q{separator}train"])
    try:
        long = new_partition(exact=f"{short.id}{separator}q", tasks=["train"])
    except (ValueError, TypeError):
        return  # a plane that refuses such a name cannot confuse partitions
    for part in (short, long):
        part.put_labeled(IDS)
    short.claim(f"q{separator}train")
    expect_status(long, False, "when the task of the other name has claimed all rows", "train")


@requirement("STAT-05")
@pytest.mark.parametrize("first", range(3))
def test_rows_that_different_tasks_claimed_are_cleared_at_once(
    part: PartitionUnderTest, first: int
) -> None:
    """Planes that change the counts of all tasks alike for a whole clear get some wrong."""
    by_train, by_prev_lp, by_both = ["a0", "a1"], ["b0"], ["c0", "c1", "c2"]
    part.put_labeled(by_train, "x")
    part.put_labeled(by_prev_lp, "y")
    part.put_labeled(by_both, "x", "y")
    part.claim("train", ["x"], 5)
    part.claim("prev_lp", ["y"], 4)
    part.put_labeled(["d0"], "x")
    groups = [by_train, by_prev_lp, by_both]
    part.clear([i for group in groups[first:] + groups[:first] for i in group])
    for task in ("train", "prev_lp"):
        expect_status(part, False, "with the one row that is left unclaimed", task)
        part.claim(task, ["x"], 1)
        expect_status(part, True, "with the one row that is left claimed", task)


@requirement("STAT-05")
@pytest.mark.parametrize("first", ["claimed", "unclaimed"])
def test_many_rows_of_which_some_were_claimed_are_cleared_at_once(
    new_partition: Callable[..., PartitionUnderTest], first: str
) -> None:
    """Planes that update their counters once for a whole clear may count all rows alike."""
    ids = [f"u{n}_g0" for n in range(200)]
    part = new_partition(num_samples=len(ids))
    part.put_labeled(ids)
    claimed = list(part.claim("train", batch_size=100).sample_ids)
    unclaimed = [sample_id for sample_id in ids if sample_id not in claimed]
    cleared = claimed[:60] + unclaimed[:60]
    part.clear(cleared if first == "claimed" else cleared[::-1])
    expect_status(part, False, "with some rows unclaimed, after a clear of claimed ones and others")
    part.claim("train")
    expect_status(part, True, "with every row claimed that was not cleared")


@requirement("STAT-03", leans_on=("REG-08",))
@pytest.mark.parametrize("claimed", [0, 2], ids=["none_claimed", "some_claimed"])
def test_a_task_that_is_registered_while_rows_live_has_claimed_none(
    new_partition: Callable[..., PartitionUnderTest], claimed: int
) -> None:
    """Planes that count what a task has still to claim may begin with nothing."""
    part = new_partition(earlier_rows=False)  # a new task would have to claim them too
    part.put_labeled(IDS)
    if claimed:
        part.claim("train", batch_size=claimed)
    part.register(tasks=["train", "prev_lp", "ref_lp"])
    if is_rejected(lambda: part.expect_labeled(IDS)):
        return  # the registration dropped the rows, which REG-08 judges
    expect_status(part, False, "for a task registered while rows live", "ref_lp")
    part.claim("ref_lp", batch_size=1)
    expect_status(part, False, "for it with rows unclaimed", "ref_lp")
    part.put_labeled(["late"])
    part.claim_all("ref_lp")
    expect_status(part, True, "for it with every row claimed", "ref_lp")
    expect_status(part, False, "for a task that has claimed less", "train", "ref_lp")


@requirement("STAT-01", leans_on=("REG-08", "STAT-05"))
def test_the_status_of_a_task_left_out_of_a_registration_is_right_or_refused(
    part: PartitionUnderTest,
) -> None:
    """Planes that lower what the registered tasks have claimed must not forget the others."""
    part.put_labeled(IDS)
    part.claim("train")
    part.claim("prev_lp")
    part.register(tasks=["train"])
    part.clear(IDS[:1])
    part.put_labeled(["late"])
    if is_rejected(lambda: part.consumed("prev_lp")):
        return  # the schema may be replaced: the task is not registered any more
    expect_status(part, False, "of a task left out, with a row unclaimed", "prev_lp")
    part.claim("prev_lp", batch_size=len(IDS))
    expect_status(part, True, "of it with every row claimed", "prev_lp")
