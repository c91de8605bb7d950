"""CLAIM-05, CLAIM-06: several claims that wait at once are each served, or time out alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest

from rlconform.certify.assertions.expect import (
    expect,
    expect_equal,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_blocked,
    expect_timeout,
    expect_waiting,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import BatchMeta

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]

#: More claims than a small server has threads.
MANY_CLAIMS = 64


@requirement("CLAIM-05")
@pytest.mark.parametrize("first", [3, 4], ids=["just_enough", "one_too_many"])
def test_rows_for_one_of_two_blocked_claims_wake_only_one(
    part: PartitionUnderTest, first: int
) -> None:
    claims = [
        BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), f"blocked claim {n}")
        for n in range(2)
    ]
    early = any(claim.returned_within(part.timeouts.quiet) for claim in claims)
    expect(not early, "both claims to wait", "an answer before there was any row")
    part.put_labeled(IDS[:first])
    still = [claim for claim in claims if not claim.returned_within(part.timeouts.quiet)]
    expect(still, "one of the claims to wait on", "an answer to both, with rows for one")
    part.put_labeled(IDS[first:])
    claimed = [claim.result(part.timeouts.settle).sample_ids for claim in claims]
    expect_equal(list(map(len, claimed)), [3, 3], "rows of the two claims")
    expect_equal(Counter(claimed[0] + claimed[1]), Counter(IDS), "claims by id")


@requirement("CLAIM-05")
def test_a_put_wakes_only_the_claim_that_requires_its_field(part: PartitionUnderTest) -> None:
    second = BackgroundCall(lambda: part.claim("train", ["y"], 2, blocking=True), "a claim for y")
    expect_blocked(second, part, "y")
    first = BackgroundCall(lambda: part.claim("prev_lp", ["x"], 2, blocking=True), "a claim for x")
    expect_blocked(first, part, "x")
    part.put_labeled(IDS[:2], "x")
    expect_ids(
        first.result(part.timeouts.settle), IDS[:2], "rows with x, for the claim that requires x"
    )
    expect_blocked(second, part, "y")
    part.put_labeled(IDS[:2], "y")
    expect_ids(
        second.result(part.timeouts.settle), IDS[:2], "rows with y, for the claim that requires y"
    )


@requirement("CLAIM-05", leans_on=("CLAIM-07",))
@pytest.mark.parametrize("oldest_has", ["x", "y"])
def test_a_claim_is_woken_by_a_field_that_the_oldest_row_has(
    part: PartitionUnderTest, oldest_has: str
) -> None:
    """Planes that watch what the oldest row lacks must also watch what younger ones lack."""
    part.put_labeled(IDS[:1], oldest_has)
    part.put_labeled(IDS[1:3], "y" if oldest_has == "x" else "x")
    waiting = BackgroundCall(
        lambda: part.claim("train", ["x", "y"], 2, blocking=True), "a claim for x and y"
    )
    expect_blocked(waiting, part, "two rows with x and y")
    part.put_labeled(IDS[1:3], oldest_has)
    expect_ids(waiting.result(part.timeouts.settle), IDS[1:3], "rows with both fields")


@requirement("CLAIM-05")
def test_many_blocked_claims_do_not_block_other_calls(part: PartitionUnderTest) -> None:
    claims = [
        BackgroundCall(lambda: part.claim(batch_size=1, blocking=True), f"blocked claim {n}")
        for n in range(MANY_CLAIMS)
    ]
    expect_blocked(claims[0], part, "a row")
    ids = [f"r{n}" for n in range(MANY_CLAIMS)]
    put = BackgroundCall(
        lambda: part.put_labeled(ids), f"a put beside {MANY_CLAIMS} claims that wait"
    )
    put.result(part.timeouts.operation)
    got = [i for claim in claims for i in claim.result(part.timeouts.operation).sample_ids]
    expect_equal(Counter(got), Counter(ids), "claims by id")


@requirement("CLAIM-05")
def test_many_blocked_claims_do_not_block_a_claim_whose_rows_are_ready(
    part: PartitionUnderTest,
) -> None:
    """Planes with a fixed number of places for claims that wait have none left for this one."""
    timeout_s = 3 * part.timeouts.operation  # no claim ends while others are ready

    def claim() -> BatchMeta:
        return part.claim("train", ["y"], 1, blocking=True, timeout_s=timeout_s)

    claims = [BackgroundCall(claim, f"blocked claim {n}") for n in range(MANY_CLAIMS)]
    expect_blocked(claims[0], part, "y")
    part.put_labeled(IDS[:2], "x")
    ids = [f"r{n}" for n in range(MANY_CLAIMS)]
    try:
        for task in ("train", "prev_lp"):
            ready = BackgroundCall(
                lambda task=task: part.claim(task, ["x"], 1, blocking=True),  # type: ignore[misc]
                f"a claim of {task} whose row is ready",
            )
            expect(len(ready.result(part.timeouts.operation).sample_ids) == 1, "one row", "none")
    finally:
        part.put_labeled(ids, "y")  # ends the claims, on any plane: the next check needs no places
    got = [i for claim in claims for i in claim.result(part.timeouts.operation).sample_ids]
    expect_equal(Counter(got), Counter(ids), "claims by id")


@requirement("CLAIM-05")
def test_a_claim_waits_on_when_a_later_one_times_out(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:1])
    earlier = BackgroundCall(
        lambda: part.claim(batch_size=3, blocking=True, timeout_s=part.timeouts.operation),
        "the earlier claim",
    )
    expect_blocked(earlier, part, "two more rows")
    expect_timeout(part, 5, 0.3)
    part.put_labeled(IDS[1:3])
    expect_ids(earlier.result(part.timeouts.settle), IDS[:3], "rows of the claim that waited on")


@requirement("CLAIM-05")
def test_one_row_wakes_the_one_claim_that_it_serves(part: PartitionUnderTest) -> None:
    others = [
        BackgroundCall(
            lambda: part.claim("train", ["y"], 1, blocking=True), f"a claim for y, number {n}"
        )
        for n in range(3)
    ]
    expect_blocked(others[-1], part, "y")
    first = BackgroundCall(lambda: part.claim("prev_lp", ["x"], 1, blocking=True), "a claim for x")
    expect_blocked(first, part, "x")
    part.put_labeled(IDS[:1], "x")
    expect_ids(first.result(part.timeouts.settle), IDS[:1], "the row with x, beside claims for y")
    part.put_labeled(IDS[:3], "y")
    got = sorted(i for claim in others for i in claim.result(part.timeouts.settle).sample_ids)
    expect_equal(got, sorted(IDS[:3]), "rows of the claims for y")


@requirement("CLAIM-05")
def test_claims_of_one_task_that_wait_in_two_partitions_are_each_woken(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    """Planes with one entry of waiting claims for each task's name forget all but the newest."""
    parts = [new_partition() for _ in range(3)]
    claims = [
        BackgroundCall(lambda part=part: part.claim("train", ["x"], 1, blocking=True), "a claim")  # type: ignore[misc]
        for part in parts
    ]
    for part, claim in zip(parts, claims, strict=True):
        expect_blocked(claim, part, "a row of its own partition")
    for part, claim in zip(parts, claims, strict=True):
        part.put_labeled(IDS[:1])
        woken = claim.result(part.timeouts.settle)
        expect_ids(woken, IDS[:1], "the row of the partition that it waits in")


@requirement("CLAIM-06")
def test_rows_of_a_claim_that_timed_out_are_there_for_other_ranks(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2])
    with suppress(TimeoutError):  # other checks cover the timeout
        part.claim(batch_size=3, blocking=True, timeout_s=0.3, dp_rank=0)
    got = part.claim(batch_size=2, dp_rank=1).sample_ids
    expect_equal(sorted(got), sorted(IDS[:2]), "rows for a rank after another's claim timed out")


#: Time in which a claim surely begins to wait, in seconds. A check of a later put asks for no more.
BEGINS_S = 0.05


@requirement("CLAIM-05")
def test_a_claim_is_served_before_an_older_one_that_needs_more(part: PartitionUnderTest) -> None:
    """Planes that serve the claims of a task strictly in turn block all behind the first."""
    older = BackgroundCall(lambda: part.claim(batch_size=4, blocking=True), "the older claim")
    expect_waiting(older, part, "four rows", "an answer with no row ready")
    part.put_labeled(["r0", "r1"])
    newer = BackgroundCall(lambda: part.claim(batch_size=2, blocking=True), "the newer claim")
    expect_ids(newer.result(part.timeouts.settle), ["r0", "r1"], "the two ready rows")
    third = BackgroundCall(lambda: part.claim(batch_size=2, blocking=True), "the third claim")
    expect(not third.returned_within(BEGINS_S), "a claim that waits", "an answer with no row ready")
    part.put_labeled(["r2", "r3"])
    expect_ids(third.result(part.timeouts.settle), ["r2", "r3"], "two rows for the claim of two")
    part.put_labeled(["r4", "r5", "r6", "r7"])
    expect_ids(older.result(part.timeouts.settle), ["r4", "r5", "r6", "r7"], "the next four")


@requirement("CLAIM-05", scattered=False)
@pytest.mark.parametrize("timeout_s", [0.0, 0.002], ids=["without_waiting", "after_a_wait"])
def test_a_claim_is_woken_after_many_claims_that_timed_out(
    part: PartitionUnderTest, timeout_s: float
) -> None:
    """Planes that keep the place of a waiting claim which times out have none left for this one."""
    for _ in range(MANY_CLAIMS + 6):
        with suppress(TimeoutError):  # other checks cover the timeout
            part.claim(batch_size=2, blocking=True, timeout_s=timeout_s)
    waiting = BackgroundCall(lambda: part.claim(batch_size=2, blocking=True), "the blocked claim")
    expect_blocked(waiting, part, "rows")
    part.put_labeled(IDS[:2])
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the woken claim")


@requirement("CLAIM-05", leans_on=("REG-03",))
@pytest.mark.parametrize("num_samples", [1, 4, 300])
def test_a_claim_that_waits_is_woken_after_the_partition_is_registered_again(
    new_partition: Callable[..., PartitionUnderTest], num_samples: int
) -> None:
    """Planes that make an emptied partition anew must take its waiting claims along."""
    part = new_partition(num_samples=4)
    part.put_labeled(IDS[:4])
    expect_ids(part.claim("train"), IDS[:4], "rows of the step before")
    part.clear(IDS[:4])
    waiting = BackgroundCall(lambda: part.claim(batch_size=2, blocking=True), "the blocked claim")
    expect_waiting(waiting, part, "two rows", "an answer with no row ready")
    part.register(num_samples=num_samples)
    part.put_labeled(IDS[4:])
    woken = waiting.result(part.timeouts.settle)
    expect_ids(woken, IDS[4:], "rows put after the registration")
