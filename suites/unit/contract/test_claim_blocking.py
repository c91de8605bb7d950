"""CLAIM-04, 05, 06, 16: claims block, are woken by puts, time out, and end with their client."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect_column,
    expect_equal,
    expect_rejection,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_blocked,
    expect_timeout,
    expect_waiting,
)
from rlconform.certify.scenarios.labeled_rows import labeled_rows
from rlconform.certify.scenarios.large_step import STEP_IDS, put_large_step
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall
from rlconform.contract import DataPlaneClient

IDS = [f"u{i // 2}_g{i % 2}" for i in range(6)]


@requirement("CLAIM-04")
@pytest.mark.parametrize("ready", [0, 5])
def test_a_claim_that_does_not_block_returns_the_ready_rows(
    part: PartitionUnderTest, ready: int
) -> None:
    if ready:
        part.put_labeled(IDS[:ready])
    claim = BackgroundCall(lambda: part.claim(batch_size=8), "a claim that must not block")
    expect_ids(claim.result(part.timeouts.settle), IDS[:ready], "rows ready, of 8 asked for:")


@requirement("CLAIM-04")
def test_a_claim_takes_rows_that_a_blocked_claim_has_not_claimed(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:2])
    waiting = BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    expect_waiting(waiting, part, "the third row", "an answer with two rows ready")
    expect_ids(part.claim(batch_size=3), IDS[:2], "rows ready beside a claim that waits")
    part.put_labeled(IDS[2:5])
    expect_ids(waiting.result(part.timeouts.settle), IDS[2:5], "rows of the claim that waited")


@requirement("CLAIM-04")
def test_a_large_step_is_claimed_in_one_call(
    new_partition: Callable[..., PartitionUnderTest],
) -> None:
    step = put_large_step(new_partition)
    expect_ids(
        step.claim(batch_size=len(STEP_IDS)),
        STEP_IDS,
        f"{len(STEP_IDS)} rows ready, as many asked for",
    )


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
@pytest.mark.parametrize("rank", [None, 1], ids=["no_rank", "rank_1"])
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


@requirement("CLAIM-05")
@pytest.mark.parametrize("there", [1, len(STEP_IDS) - 1], ids=["most_come", "one_comes"])
def test_a_blocking_claim_waits_for_the_last_rows_of_a_large_step(
    new_partition: Callable[..., PartitionUnderTest], there: int
) -> None:
    """Planes that tell those who wait which rows came must find room for all of a large put."""
    part, numbers = new_partition(num_samples=len(STEP_IDS)), torch.arange(len(STEP_IDS))
    part.put(STEP_IDS[:there], x=numbers[:there])
    wait_s = 2 * part.timeouts.operation
    waiting = BackgroundCall(
        lambda: part.claim(batch_size=len(STEP_IDS), blocking=True, timeout_s=wait_s),
        "the blocked claim",
    )
    expect_waiting(waiting, part, "the last rows", "an answer without them")
    part.put(STEP_IDS[there:], x=numbers[there:])
    got = waiting.result(part.timeouts.operation)
    expect_ids(got, STEP_IDS, f"{len(STEP_IDS)} rows of the woken claim")


@requirement("CLAIM-05")
def test_rows_cleared_meanwhile_do_not_count_for_a_blocked_claim(
    part: PartitionUnderTest,
) -> None:
    part.put_labeled(IDS[:2])
    waiting = BackgroundCall(lambda: part.claim(batch_size=3, blocking=True), "the blocked claim")
    expect_blocked(waiting, part, "a third row")
    part.clear(IDS[:1])
    part.put_labeled(IDS[2:3])
    expect_blocked(waiting, part, "a third row in place of the one that was cleared")
    part.put_labeled(IDS[3:4])
    expect_ids(waiting.result(part.timeouts.settle), IDS[1:4], "the three rows there are")


@requirement("CLAIM-05")
@pytest.mark.parametrize("fields", [("x", "y"), ("y", "x")], ids="-".join)
def test_a_blocked_claim_is_woken_by_whichever_field_is_put_last(
    part: PartitionUnderTest, fields: tuple[str, str]
) -> None:
    """Planes that wake a claim only for the fields that its rows lacked at first miss others."""
    there, lacking = fields
    part.put_labeled(IDS[:1], there)
    waiting = BackgroundCall(
        lambda: part.claim("train", ["x", "y"], 2, blocking=True), "the blocked claim"
    )
    expect_waiting(waiting, part, "two rows with both fields", "an answer without them")
    part.put_labeled(IDS[:1], lacking)
    part.put_labeled(IDS[1:2], lacking)
    expect_waiting(waiting, part, f"{there} of the second row", "an answer without it")
    part.put_labeled(IDS[1:2], there)
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the woken claim")


@requirement("CLAIM-05")
def test_a_claim_blocks_by_default(part: PartitionUnderTest) -> None:
    part.put_labeled(IDS[:1])
    waiting = BackgroundCall(
        lambda: part.client.claim_meta(
            partition_id=part.id, task_name="train", required_fields=["x"], batch_size=2
        ),
        "a claim with neither blocking nor timeout_s",
    )
    expect_blocked(waiting, part, "a second row")
    part.put_labeled(IDS[1:2])
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the woken claim")


@requirement("CLAIM-06")
@pytest.mark.parametrize(("ready", "timeout_s"), [(0, 0.5), (2, 0.5), (2, 0.0)])
def test_a_claim_that_times_out_claims_nothing(
    part: PartitionUnderTest, ready: int, timeout_s: float
) -> None:
    if ready:
        part.put_labeled(IDS[:ready])
    expect_timeout(part, 3, timeout_s)
    expect_equal(
        sorted(part.claim_all()), sorted(IDS[:ready]), "rows still claimable after the timeout"
    )


#: Calls that make no row ready, by what they do; each gets a number of its own.
MEANWHILE: dict[str, Callable[[PartitionUnderTest, PartitionUnderTest, int], object]] = {
    "puts_of_other_fields": lambda part, _, n: part.put_labeled(IDS[:3], "x", version=n),
    "tags": lambda part, _, n: part.put(IDS[:3], [{"m": n}] * 3),
    "claims_of_another_task": lambda part, _, n: part.claim("prev_lp", ["x"], 1),  # noqa: ARG005
    "puts_into_another_partition": lambda _, other, n: other.put_labeled([f"r{n}"], "y"),
    "registrations": lambda part, *_: part.register(),
    "registrations_of_another_partition": lambda _, other, __: other.register(),
    "clears_of_another_partition": lambda _, other, __: other.clear(["r0"]),
    "reads": lambda part, *_: part.get(IDS[:3], "x"),
    "status": lambda part, *_: part.consumed("train"),
}


@requirement("CLAIM-06", leans_on=("REG-08",))
@pytest.mark.parametrize("call", MEANWHILE.values(), ids=MEANWHILE)
def test_other_calls_do_not_extend_the_timeout(
    new_partition: Callable[..., PartitionUnderTest],
    call: Callable[[PartitionUnderTest, PartitionUnderTest, int], object],
) -> None:
    part, other, timeout_s = new_partition(), new_partition(), 0.3
    part.put_labeled(IDS[:3], "x")
    waiting = BackgroundCall(
        lambda: part.claim("train", ["y"], 3, blocking=True, timeout_s=timeout_s),
        "the blocked claim",
    )
    deadline = time.monotonic() + timeout_s + part.timeouts.settle
    number = 0
    while not waiting.finished.is_set() and time.monotonic() < deadline:
        number += 1
        call(part, other, number)
        waiting.wait_briefly()
    try:
        got = waiting.result(part.timeouts.quiet)
    except TimeoutError:
        return
    raise ContractViolation("TimeoutError", f"a claim of {got.sample_ids}", leans_on=("CLAIM-05",))


@requirement("CLAIM-05")
def test_a_claim_that_waits_while_its_partition_is_registered_again_is_served(
    part: PartitionUnderTest,
) -> None:
    waiting = BackgroundCall(lambda: part.claim(batch_size=2, blocking=True), "the blocked claim")
    expect_blocked(waiting, part, "rows")
    part.register()  # as a driver does at the start of each step
    part.put_labeled(IDS[:2])
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the claim that waited")


@requirement("CLAIM-06")
def test_rows_that_trickle_in_do_not_extend_the_timeout_of_this_process(
    part: PartitionUnderTest,
) -> None:
    timeout_s = 0.5
    waiting = BackgroundCall(lambda: expect_timeout(part, 1000, timeout_s), "claims that time out")
    for n in range(500):
        if waiting.returned_within(timeout_s / 3):
            break
        part.put_labeled([f"r{n}"])
    waiting.result(part.timeouts.operation)


@requirement("CLAIM-16", ends_plane=True)
def test_a_close_ends_the_claims_that_wait(
    client: DataPlaneClient, part: PartitionUnderTest
) -> None:
    part.put_labeled(IDS[:1])
    waiting = BackgroundCall(
        lambda: part.claim(batch_size=2, blocking=True, timeout_s=120.0), "the blocked claim"
    )
    expect_blocked(waiting, part, "a second row")
    closing = BackgroundCall(client.close, "a close beside a claim that waits")
    closing.result(part.timeouts.operation)
    expect_rejection(
        lambda: waiting.result(part.timeouts.operation), "a claim whose client was closed"
    )


#: A timeout that means none: in ms, it is more than a signed integer of 32 bits holds.
MONTH_S = 30 * 24 * 3600.0


@requirement("CLAIM-05")
def test_a_claim_may_wait_for_a_month(part: PartitionUnderTest) -> None:
    def start() -> BackgroundCall:
        return BackgroundCall(
            lambda: part.claim(batch_size=2, blocking=True, timeout_s=MONTH_S),
            f"a claim with {MONTH_S:,.0f} s to wait",
        )

    part.put_labeled(IDS[:2])
    expect_ids(start().result(part.timeouts.settle), IDS[:2], "rows that were ready")
    waiting = start()
    part.put_labeled(IDS[2:3])
    expect_blocked(waiting, part, "a second row")
    part.put_labeled(IDS[3:4])
    expect_ids(waiting.result(part.timeouts.settle), IDS[2:4], "rows of the woken claim")
