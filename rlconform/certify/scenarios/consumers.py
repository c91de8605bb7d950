"""Consumers that claim beside a producer, or in vain, and what became of the rows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rlconform.certify.assertions.values import ContractViolation, expect, expect_equal
from rlconform.certify.recording.recorder import Skipped
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import CLOCK_TOLERANCE_S, BackgroundCall, run_concurrently
from rlconform.contract import BatchMeta

#: Claims once, and names the rows that came.
Claim = Callable[[], list[str]]


def claim_until_done(
    producer: BackgroundCall, claims: Sequence[Claim], most: int, timeout_s: float
) -> list[list[str]]:
    """All claims that were made, each until none came after the producer was over.

    A consumer that got more than ``most`` rows ends as well: some came twice, and would for ever.
    """
    stop = threading.Event()

    def consume(claim: Claim) -> list[list[str]]:
        made: list[list[str]] = []
        rows = 0
        while rows <= most and not stop.is_set():
            over = producer.finished.is_set()
            if came := claim():
                made.append(came)
                rows += len(came)
            elif over:
                break
            else:
                producer.wait_briefly()
        return made

    try:
        results = run_concurrently(
            [partial(consume, claim) for claim in claims], timeout_s, "consumer"
        )
    finally:
        stop.set()
    return [made for result in results for made in result]


def expect_waiting(claim: BackgroundCall, part: PartitionUnderTest, what: str, came: str) -> None:
    """The claim is still under way after the target's ``quiet`` time, since ``what`` is missing."""
    early = claim.returned_within(part.timeouts.quiet)
    expect(not early, f"the claim to wait for {what}", came, leans_on=("CLAIM-05",))


def expect_timeout(part: PartitionUnderTest, batch_size: int, timeout_s: float) -> None:
    """A blocking claim of more than there is ends in TimeoutError at ``timeout_s``, or soon after.

    One that ends late is made again, twice at most: a busy machine is late now and then, a plane
    that waits by a clock of its own is each time.
    """
    settle = part.timeouts.settle
    late: list[float] = []
    while len(late) < 3:
        waiting = BackgroundCall(
            lambda: part.claim(batch_size=batch_size, blocking=True, timeout_s=timeout_s),
            "the blocked claim",
        )
        try:
            came = waiting.result(timeout_s + part.timeouts.operation)
        except TimeoutError:
            late.append(waiting.seconds - timeout_s)
        else:
            came_back = f"a claim of {came.sample_ids}"
            raise ContractViolation("TimeoutError", came_back, leans_on=("CLAIM-05",))
        expect(
            late[-1] >= -CLOCK_TOLERANCE_S,
            f"TimeoutError not before {timeout_s} s",
            f"after {waiting.seconds:.3f} s",
        )
        if late[-1] <= settle:
            return
    raise ContractViolation(
        f"TimeoutError within {settle:g} s of {timeout_s} s",
        ", and again ".join(f"{each:.1f}" for each in late) + " s after them",
    )


def expect_once(claims: Iterable[Sequence[str]], ids: Sequence[str]) -> None:
    """Each of ``ids`` was claimed once, and nothing else was."""
    counted = Counter(i for claim in claims for i in claim)
    twice = sorted(i for i, n in counted.items() if n > 1)
    lost = sorted(set(ids) - set(counted))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)
    expect_equal(sorted(counted), sorted(ids), "rows claimed")


class KitWasLate(Skipped):
    """The kit's own way to other processes took the time that a claim had."""


def start_blocking_claim(waiter: PartitionUnderTest, rows: int, timeout_s: float) -> BackgroundCall:
    """A blocking claim under way; it gives the meta, or None after its time, and when it ended."""

    def claim() -> tuple[BatchMeta | None, float]:
        try:
            meta = waiter.claim(batch_size=rows, blocking=True, timeout_s=timeout_s)
        except TimeoutError:
            return None, waiter.last_end
        return meta, waiter.last_end

    return BackgroundCall(claim, "the blocked claim")


def expect_woken(
    waiting: BackgroundCall, waiter: PartitionUnderTest, put_by: PartitionUnderTest
) -> BatchMeta:
    """What the claim got: it woke within ``settle`` of the last put's end, wherever both ran.

    Raises:
        ContractViolation: It woke later, or not at all.
        KitWasLate: Its time was over before the put had had as long to reach it.
    """
    settle, put = put_by.timeouts.settle, put_by.last_end
    meta: BatchMeta | None
    meta, end = waiting.result(3 * settle + waiter.transport_s)
    due, after = f"the blocked claim to come back within {settle:g} s of the put", end - put
    if meta is None and after < settle:
        raise KitWasLate(
            f"the claim's time was over {after:.1f} s after the put, too soon to judge"
        )
    if meta is None:
        raise ContractViolation(due, f"TimeoutError after {after:.1f} s")
    expect(after <= settle, due, f"its answer after {after:.1f} s")
    return meta
