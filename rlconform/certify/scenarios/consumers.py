"""Consumers that claim while a producer puts, or that block, and assertions on their claims."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rlconform.certify.assertions.expect import ContractViolation, expect, expect_equal
from rlconform.certify.recording.recorder import Skipped
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import CLOCK_TOLERANCE_S, BackgroundCall, run_concurrently
from rlconform.contract import BatchMeta

#: Claims once and returns the ids.
Claim = Callable[[], list[str]]


def claim_until_done(
    producer: BackgroundCall, claims: Sequence[Claim], most: int, timeout_s: float
) -> list[list[str]]:
    """Claim with each consumer until the producer ends and a claim is empty; return all claims.

    A consumer that got more than ``most`` rows ends too: it got some rows twice, and might
    continue forever.
    """
    stop = threading.Event()

    def consume(claim: Claim) -> list[list[str]]:
        made: list[list[str]] = []
        rows = 0
        while rows <= most and not stop.is_set():
            finished = producer.finished.is_set()
            if ids := claim():
                made.append(ids)
                rows += len(ids)
            elif finished:
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


def expect_waiting(claim: BackgroundCall, part: PartitionUnderTest, what: str, got: str) -> None:
    """Expect the claim to block beyond the target's ``quiet`` time, as ``what`` is missing."""
    early = claim.returned_within(part.timeouts.quiet)
    expect(not early, f"the claim to wait for {what}", got, leans_on=("CLAIM-05",))


def expect_timeout(part: PartitionUnderTest, batch_size: int, timeout_s: float) -> None:
    """Expect TimeoutError soon after ``timeout_s`` from a claim of more rows than are ready.

    A claim that ends late is repeated, twice at most: a busy machine is late sometimes, a plane
    that ignores ``timeout_s`` is late every time.
    """
    settle = part.timeouts.settle
    late: list[float] = []
    while len(late) < 3:
        waiting = BackgroundCall(
            lambda: part.claim(batch_size=batch_size, blocking=True, timeout_s=timeout_s),
            "the blocked claim",
        )
        try:
            meta = waiting.result(timeout_s + part.timeouts.operation)
        except TimeoutError:
            late.append(waiting.seconds - timeout_s)
        else:
            got = f"a claim of {meta.sample_ids}"
            raise ContractViolation("TimeoutError", got, leans_on=("CLAIM-05",))
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
    """Expect each of ``ids`` to be claimed exactly once, and no other row."""
    counted = Counter(i for claim in claims for i in claim)
    twice = sorted(i for i, n in counted.items() if n > 1)
    lost = sorted(set(ids) - set(counted))
    expect(not twice, "no row claimed twice", twice)
    expect(not lost, "no row lost", lost)
    expect_equal(sorted(counted), sorted(ids), "rows claimed")


class KitWasLate(Skipped):
    """rlconform's transport to another process used up the time of a claim."""


def start_blocking_claim(
    waiter: PartitionUnderTest,
    rows: int,
    timeout_s: float,
    dp_rank: int | None = None,
    fields: Sequence[str] = ("x",),
    task: str = "train",
) -> BackgroundCall:
    """Start a blocking claim; its result is the meta, or None on timeout, and its end time."""

    def claim() -> tuple[BatchMeta | None, float]:
        try:
            meta = waiter.claim(
                task, fields, rows, blocking=True, timeout_s=timeout_s, dp_rank=dp_rank
            )
        except TimeoutError:
            return None, waiter.last_end
        return meta, waiter.last_end

    return BackgroundCall(claim, "the blocked claim")


def expect_woken(
    waiting: BackgroundCall, waiter: PartitionUnderTest, put_by: PartitionUnderTest
) -> BatchMeta:
    """Expect a blocked claim to return within ``settle`` of the last put; return its meta.

    Raises:
        ContractViolation: The claim returned later, or timed out.
        KitWasLate: The claim timed out less than ``settle`` seconds after the put.
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


def expect_blocked(claim: BackgroundCall, part: PartitionUnderTest, what: str) -> None:
    """Expect a claim to wait for what it lacks."""
    expect_waiting(claim, part, what, "an answer without it")
