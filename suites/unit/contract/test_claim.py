"""CLAIM: every ready row goes to each task exactly once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from rlconform.certify.assertions.values import (
    ContractViolation,
    expect,
    expect_column,
    expect_equal,
    expect_lookup_error,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    claim_until_done,
    expect_once,
    expect_timeout,
    expect_waiting,
)
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.partition import TASKS, UNDECLARED, PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall, run_concurrently
from rlconform.wire import stack_or_nest

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]


@requirement("CLAIM-01")
def test_only_ready_rows_are_claimed(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:3], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[:3], "rows with both fields")
    expect_equal(part.claim_all("prev_lp", ["z"]), [], "rows with a field nobody wrote")


@requirement("CLAIM-01", leans_on=("REG-02",))
def test_an_undeclared_field_is_required_too(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS, "x")
    part.put_labeled(IDS[:2], UNDECLARED)
    expect_ids(part.claim("train", ["x", UNDECLARED]), IDS[:2], "rows with both fields")


@requirement("CLAIM-01")
def test_a_claim_takes_no_more_than_asked(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    first, second = part.claim(batch_size=4), part.claim(batch_size=1)
    expect_equal((len(first.sample_ids), len(second.sample_ids)), (4, 1), "rows claimed")


@requirement("CLAIM-01")
def test_a_claim_of_no_rows_takes_none(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    try:
        came = part.client.claim_meta(
            partition_id=part.id,
            task_name="train",
            required_fields=["x"],
            batch_size=0,
            blocking=False,
        )
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - whether to refuse such a claim is the plane's to say
        pass
    else:
        expect_equal(list(came.sample_ids), [], "rows of a claim of none")
    expect_ids(part.claim("train"), IDS, "rows still claimable after it")


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_in_sequence(part: PartitionUnderTest) -> None:
    ids = [f"r{i}" for i in range(20)]
    part.put_labeled(ids)
    expect_equal(Counter(part.claim_all(batch_size=7)), Counter(ids), "claims by id")
    expect_equal(part.claim(batch_size=1).sample_ids, [], "rows left")


@requirement("CLAIM-02")
def test_each_row_is_claimed_once_by_threads(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    ids = [f"r{i}" for i in range(120)]
    part = new_partition(num_samples=len(ids))

    def produce() -> None:
        for start in range(0, len(ids), 6):
            part.put_labeled(ids[start : start + 6])

    def claim() -> list[str]:
        return part.claim(batch_size=5).sample_ids

    producer = BackgroundCall(produce, "the producer")
    claims = claim_until_done(producer, [claim] * 4, len(ids), part.timeouts.check)
    producer.result(part.timeouts.operation)
    expect_once([*claims, part.claim_all()], ids)


@requirement("CLAIM-02", race=True)
def test_no_row_is_lost_while_the_partition_grows(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    producers, puts, rows_each = 8, 8, 5
    part = new_partition(num_samples=producers * puts * rows_each)

    def produce(producer: int) -> list[str]:
        put: list[str] = []
        for n in range(puts):
            ids = [f"p{producer}_{n}_{k}" for k in range(rows_each)]
            part.put_labeled(ids, "x", "y")
            put += ids
        return put

    calls = [partial(produce, producer) for producer in range(producers)]
    put = [i for ids in run_concurrently(calls, part.timeouts.check, "producer") for i in ids]
    claims = Counter(part.claim_all("train", ["x", "y"], batch_size=64))
    lost = sorted(set(put) - set(claims))
    expect(not lost, "each row claimable whose put returned", f"{len(lost)} lost: {lost[:4]}")
    expect_equal(claims, Counter(put), "claims by id")
    expect(part.consumed("train"), "every row consumed", "a row that no claim names counted")
    part.expect_labeled(put, "x", "y")


@requirement("CLAIM-02")
def test_rows_cleared_after_their_claim_take_none_of_the_others_along(
    part: PartitionUnderTest,
) -> None:
    part.put_labeled(IDS)
    first = part.claim(batch_size=2).sample_ids
    part.clear(first)
    rest = [i for i in IDS if i not in first]
    expect_ids(part.claim(), rest, "rows not yet claimed")


@requirement("CLAIM-03")
def test_tasks_have_their_own_cursors(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    expect_ids(part.claim("train"), IDS, "rows of one task")
    expect_ids(part.claim("prev_lp"), IDS, "rows of the other task")


@requirement("CLAIM-03")
@pytest.mark.parametrize("separator", [":", "/", "_", "|", "."])
def test_a_task_joined_with_its_partition_shares_no_cursor(
    new_partition: Callable[..., PartitionUnderTest], separator: str
) -> None:
    short = new_partition(tasks=[f"q{separator}train"])
    try:
        long = new_partition(exact=f"{short.id}{separator}q", tasks=["train"])
    except (ValueError, TypeError):
        return  # a plane that refuses such a partition has nothing to confuse
    for part in (short, long):
        part.put_labeled(IDS)
    expect_ids(short.claim(f"q{separator}train"), IDS, "rows of the task with the long name")
    expect_ids(long.claim("train"), IDS, "rows of the task whose partition has the long name")


@requirement("CLAIM-04")
@pytest.mark.parametrize("ready", [0, 5])
def test_a_claim_that_does_not_block_takes_what_is_there(
    part: PartitionUnderTest, ready: int
) -> None:
    if ready:
        part.put_labeled(IDS[:ready])
    claim = BackgroundCall(lambda: part.claim(batch_size=8), "a claim that must not block")
    expect_ids(claim.result(part.timeouts.settle), IDS[:ready], "rows ready, of 8 asked for:")


@requirement("CLAIM-04")
def test_a_claim_finds_what_one_that_waits_has_not_got(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2])
    waiting = BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    expect_waiting(waiting, part, "the third row", "an answer with two rows ready")
    expect_ids(part.claim(batch_size=3), IDS[:2], "rows ready beside a claim that waits")
    part.put_labeled(IDS[2:5])
    expect_ids(waiting.result(part.timeouts.settle), IDS[2:5], "rows of the claim that waited")


@requirement("CLAIM-05")
def test_a_blocking_claim_waits_for_the_last_field(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:3], "x")
    waiting = BackgroundCall(
        lambda: part.claim("train", ["x", "y"], 3, blocking=True), "the blocked claim"
    )
    expect_waiting(waiting, part, "y", "an answer before anybody wrote it")
    part.put_labeled(IDS[:3], "y")
    expect_ids(waiting.result(part.timeouts.settle), IDS[:3], "rows of the woken claim")


@requirement("CLAIM-05")
def test_rows_for_one_of_two_blocked_claims_wake_one(part: PartitionUnderTest) -> None:
    claims = [
        BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), f"blocked claim {n}")
        for n in range(2)
    ]
    early = any(claim.returned_within(part.timeouts.quiet) for claim in claims)
    expect(not early, "both claims to wait", "an answer before there was any row")
    part.put_labeled(IDS[:3])
    still = [claim for claim in claims if not claim.returned_within(part.timeouts.quiet)]
    expect(still, "one of the claims to wait on", "an answer to both, with rows for one")
    part.put_labeled(IDS[3:])
    claimed = [claim.result(part.timeouts.settle).sample_ids for claim in claims]
    expect_equal(list(map(len, claimed)), [3, 3], "rows of the two claims")
    expect_equal(Counter(claimed[0] + claimed[1]), Counter(IDS), "claims by id")


@requirement("CLAIM-05")
@pytest.mark.parametrize("rank", [None, 1], ids=["of_nobody", "of_a_rank"])
def test_a_blocking_claim_waits_for_the_last_row(
    part: PartitionUnderTest, rank: int | None
) -> None:
    waiting = BackgroundCall(
        lambda: part.claim(batch_size=3, blocking=True, dp_rank=rank), "the blocked claim"
    )
    part.put_labeled(IDS[:2])
    expect_waiting(waiting, part, "the third row", "an answer with two rows ready")
    part.put_labeled(IDS[2:3])
    woken = waiting.result(part.timeouts.settle)
    expect_ids(woken, IDS[:3], "rows of the woken claim")
    expect_column(part.get_data(woken), "x", labeled_rows(part.id, woken.sample_ids, "x"))


@requirement("CLAIM-06")
@pytest.mark.parametrize(("ready", "timeout_s"), [(0, 0.5), (2, 0.5), (2, 0.0)])
def test_a_blocking_claim_times_out_having_claimed_nothing(
    part: PartitionUnderTest, ready: int, timeout_s: float
) -> None:
    if ready:
        part.put_labeled(IDS[:ready])
    expect_timeout(part, 3, timeout_s)
    expect_equal(
        sorted(part.claim_all()), sorted(IDS[:ready]), "rows still claimable after the timeout"
    )


@requirement("CLAIM-06")
def test_a_timeout_is_kept_while_other_rows_come(part: PartitionUnderTest) -> None:
    timeout_s = 0.3
    part.put_labeled(IDS[:3], "x")
    waiting = BackgroundCall(
        lambda: part.claim("train", ["y"], 3, blocking=True, timeout_s=timeout_s),
        "the blocked claim",
    )
    deadline = time.monotonic() + timeout_s + part.timeouts.settle
    version = 0
    while not waiting.finished.is_set() and time.monotonic() < deadline:
        version += 1
        part.put_labeled(IDS[:3], "x", version=version)
    try:
        came = waiting.result(part.timeouts.quiet)
    except TimeoutError:
        return
    raise ContractViolation("TimeoutError", f"a claim of {came.sample_ids}", leans_on=("CLAIM-05",))


@requirement("CLAIM-07")
@pytest.mark.parametrize("order", ["xy", "yx"], ids=["as_asked_for", "against_it"])
def test_the_last_field_makes_a_row_claimable_once(part: PartitionUnderTest, order: str) -> None:
    first, last = order
    part.put_labeled(IDS[:2], first)
    expect_equal(part.claim("train", ["x", "y"], 1).sample_ids, [], "rows before their last field")
    part.put_labeled(IDS[:1], last)
    expect_ids(part.claim("train", ["x", "y"], 1), IDS[:1], "rows after it")
    expect_equal(part.claim("train", ["x", "y"], 1).sample_ids, [], "rows claimed again")


#: Values by which a field is produced, though there is little or nothing to them.
NOTHING_MUCH: dict[str, Any] = {
    "rows_of_no_tokens": stack_or_nest([torch.arange(n) for n in (2, 0, 1)]),
    "only_rows_of_no_tokens": torch.nested.nested_tensor(
        [torch.arange(0)] * 3, layout=torch.jagged
    ),
    "rows_without_elements": torch.zeros(3, 0),
    "zeros": torch.zeros(3, dtype=torch.int64),
    "false": torch.zeros(3, dtype=torch.bool),
}


@requirement("CLAIM-07")
@pytest.mark.parametrize("column", NOTHING_MUCH.values(), ids=NOTHING_MUCH)
def test_a_field_is_there_whatever_its_value(
    part: PartitionUnderTest, column: torch.Tensor
) -> None:
    ids = IDS[:3]
    part.put_labeled(ids, "x")
    part.put(ids, y=column)
    expect_ids(part.claim("train", ["x", "y"]), ids, "rows with both fields (an aborted rollout's)")
    expect(part.consumed("train"), "every row consumed", "a row that no claim names counted")


@requirement("CLAIM-08")
@pytest.mark.parametrize("field", ["x", "y"], ids=["overwritten", "written_to"])
def test_a_claimed_row_is_not_handed_out_again(part: PartitionUnderTest, field: str) -> None:
    part.put_labeled(IDS)
    part.claim("train")
    part.put_labeled(IDS, field, version=1)
    expect_equal(part.claim_all("train"), [], "rows claimed again after a write")
    expect_equal(
        part.claim_all("train", sorted({"x", field})), [], "rows claimed again by other fields"
    )


@requirement("CLAIM-08")
def test_a_stamp_makes_no_claimed_row_ready_again(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.claim("train")
    part.put(IDS, [{"advantage": 0.5}] * len(IDS))
    expect_equal(part.claim_all("train"), [], "rows claimed again after a stamp")


@requirement("CLAIM-09")
def test_claimed_rows_stay_readable(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    meta = part.claim("train")
    expect_column(part.get_data(meta), "x", labeled_rows(part.id, meta.sample_ids, "x"))
    part.expect_labeled(meta.sample_ids)


@requirement("CLAIM-09")
def test_rows_that_every_task_claimed_stay_readable(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    for task in TASKS:
        expect_ids(part.claim(task), IDS, f"rows claimed by {task}")
    part.expect_labeled(IDS)


@requirement("CLAIM-10")
def test_rows_cleared_after_a_claim_are_not_in_the_next(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    (first,) = part.claim(batch_size=1).sample_ids
    rest = [i for i in IDS if i != first]
    part.clear(rest[:3])
    expect_equal(sorted(part.claim_all()), sorted(rest[3:]), "rows that were not cleared")


@requirement("CLAIM-10")
def test_cleared_rows_are_never_claimed(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS)
    part.clear(IDS[:3])
    expect_equal(sorted(part.claim_all()), sorted(IDS[3:]), "rows that were not cleared")


@requirement("CLAIM-10", race=True)
def test_claims_that_race_clears_name_real_rows(part: PartitionUnderTest) -> None:
    rounds = 60
    cleared: set[str] = set()

    def churn() -> None:
        for n in range(rounds):
            ids = [f"r{n}_{k}" for k in range(3)]
            part.put_labeled(ids)
            part.clear(ids)
            cleared.update(ids)

    churner = BackgroundCall(churn, "the churner")
    while not churner.finished.is_set():
        gone = set(cleared)  # cleared before this claim began
        came = part.claim("train", ["x"], 1).sample_ids
        ghosts = gone & set(came)
        expect(not ghosts, "no row that was cleared before the claim", sorted(ghosts))
        if not came:
            churner.give_way()
    churner.result(part.timeouts.operation)
    expect_equal(part.claim_all(), [], "rows claimable once all are cleared")


@requirement("CLAIM-11")
@pytest.mark.parametrize("blocking", [False, True], ids=["at_once", "blocking"])
def test_an_unknown_task_is_rejected(part: PartitionUnderTest, blocking: bool) -> None:
    part.put_labeled(IDS)
    expect_refused(part, "trian", blocking, "a task that was not registered")


def expect_refused(part: PartitionUnderTest, task: str, blocking: bool, what: str) -> None:
    """A claim is refused, however it asks: a name that is mistyped is no reason to wait."""

    def claim() -> object:
        try:
            return part.claim(task, blocking=blocking, timeout_s=part.timeouts.settle)
        except TimeoutError as error:
            raise ContractViolation(f"{what} to be refused", f"TimeoutError: {error}") from error

    expect_lookup_error(claim, what)


@requirement("CLAIM-11")
@pytest.mark.parametrize("blocking", [False, True], ids=["at_once", "blocking"])
def test_an_unknown_partition_is_rejected(part: PartitionUnderTest, blocking: bool) -> None:
    stray = part.via(part.client)
    stray.id = f"{part.id}-never-registered"
    expect_refused(stray, "train", blocking, "a partition that was not registered")


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


@requirement("CLAIM-13")
@pytest.mark.parametrize("ids", [IDS, IDS[::-1]], ids=["by_name", "against_names"])
def test_the_oldest_rows_come_first(part: PartitionUnderTest, ids: list[str]) -> None:
    for sample_id in ids[:4]:
        part.put_labeled([sample_id])
    part.clear(ids[:1])
    part.put_labeled(ids[4:5])  # may take the cleared row's slot, but not its place
    order = [part.claim(batch_size=1).sample_ids for _ in range(4)]
    expect_equal(order, [[i] for i in ids[1:5]], "rows in the order they were put")


@requirement("CLAIM-14")
@pytest.mark.parametrize("way", ["at_once", "blocking", "empty"])
def test_the_meta_says_where_it_comes_from(part: PartitionUnderTest, way: str) -> None:
    if way != "empty":
        part.put_labeled(IDS, "x", "y", "z")
    meta = part.claim("train", ["y", "x"], blocking=way == "blocking")
    expect_equal(meta.partition_id, part.id, "partition_id")
    expect_equal(meta.task_name, "train", "task_name")
    expect_equal(list(meta.fields or []), ["y", "x"], "fields")
