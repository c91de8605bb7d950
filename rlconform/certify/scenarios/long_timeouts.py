"""Claims that may wait for so long that the time does not fit into few bits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from rlconform.certify.assertions.expect import expect, expect_equal
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

#: Seconds that do not fit 15, 16, 31 or 32 bits: as nanoseconds, microseconds, milliseconds, ticks
#: of 10 or 100 ms, or seconds. What is left of each in that many bits is below a fifth of a second.
NARROW_S = [
    12.9, 32.9, 65.6, 327.8, 655.4, 3276.9, 2147.6, 4295.1, 6553.7, 32_768.1, 65_536.1,
    2_147_483.8, 4_294_967.4,
]  # fmt: skip
#: Whole hours, days and a year.
HOURS_S = [3_600.0, 86_400.0, 30 * 86_400.0, 366 * 86_400.0]


def ended_within(waiting: BackgroundCall, seconds: float) -> bool:
    """Whether the claim ends within ``seconds``, with rows or at a timeout."""
    try:
        return waiting.returned_within(seconds)
    except TimeoutError:
        return True


def check_long_timeouts(
    claims: PartitionUnderTest, puts: PartitionUnderTest, timeouts: Sequence[float]
) -> None:
    """Claim a row with each timeout at once, see that all wait, and put a row for each.

    Timeouts that may be over before the rows are put, on a slow plane, are left out.
    """
    soonest = claims.timeouts.quiet + claims.timeouts.operation
    timeouts = [timeout_s for timeout_s in timeouts if timeout_s > soonest]
    ids = [f"r{n}" for n, _ in enumerate(timeouts)]
    waiting = {
        timeout_s: BackgroundCall(
            partial(claims.claim, batch_size=1, blocking=True, timeout_s=timeout_s),
            f"the claim that may wait for {timeout_s:g} s",
        )
        for timeout_s in timeouts
    }
    deadline = time.monotonic() + claims.timeouts.quiet
    for timeout_s, claim in waiting.items():
        ended = ended_within(claim, max(0.0, deadline - time.monotonic()))
        expect(not ended, f"a claim with {timeout_s:g} s to wait", "an end at once")
    puts.put_labeled(ids)
    claimed = [
        one
        for claim in waiting.values()
        for one in claim.result(claims.timeouts.settle + claims.call_s).sample_ids
    ]
    expect_equal(sorted(claimed), sorted(ids), "rows of the claims that may wait for long")
