"""CLAIM-05, CLAIM-06: long waits end as short ones do, and what has waited is as it was.

    check    claim ──▶ waits for all of 6 s
             claim, claim, claim, ... ──▶ each waits for a part of the time
             ── put ──▶ all of them return

All that needs time is checked beside one wait.
"""

from __future__ import annotations

import time

import pytest

from rlconform.certify.assertions.expect import expect, expect_equal, leaning_on
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.long_timeouts import (
    HOURS_S,
    NARROW_S,
    check_long_timeouts,
    ended_within,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.threads import BackgroundCall

IDS = ["u0_g0", "u0_g1"]

#: Longer than the default timeout of many transports, in seconds.
LONG_S = 6.0

#: Claims that begin one after the other while the long one waits. A claim that looks for rows at
#: pauses longer than the settle time misses it with some of them, whenever it looks.
BESIDE = [f"r{n}" for n in range(16)]


@requirement("CLAIM-06", patience=60, scattered=False)
def test_a_claim_waits_for_all_of_a_long_timeout(part: PartitionUnderTest) -> None:
    part.put_labeled(["anew"], "z")
    waiting = BackgroundCall(
        lambda: part.claim(batch_size=2, blocking=True, timeout_s=20 * LONG_S), "the blocked claim"
    )
    part.put_labeled(IDS[:1])
    expect_ids(part.claim("prev_lp"), IDS[:1], "the row there is")
    part.clear(["anew"])
    part.put_labeled(["anew"], "z", version=1)
    early, beside = False, []
    for _ in BESIDE:
        beside.append(_start_claim(part))
        early = early or ended_within(waiting, LONG_S / len(BESIDE))
    expect(
        not early,
        f"a claim with {20 * LONG_S:g} s to wait for {LONG_S:g} s and more",
        f"an end after {waiting.seconds:.1f} s" if early else "",
        leans_on=("CLAIM-05",),
    )
    again = part.claim("prev_lp", batch_size=1).sample_ids
    with leaning_on("CLAIM-02"):
        expect_equal(again, [], f"rows claimed again {LONG_S:g} s after their claim")
    with leaning_on("CLEAR-04"):
        part.expect_labeled(["anew"], "z", version=1)
    with leaning_on("CLAIM-05"):
        _expect_woken(beside, part)
    part.put_labeled(IDS[1:2])
    expect_ids(waiting.result(part.timeouts.settle), IDS[:2], "rows of the claim that waited long")


@requirement("CLAIM-05", leans_on=("CLAIM-06",))
@pytest.mark.parametrize("timeouts", [NARROW_S, HOURS_S], ids=["narrow", "hours"])
def test_claims_that_may_wait_for_long_wait(
    part: PartitionUnderTest, timeouts: list[float]
) -> None:
    """Planes that count a deadline in a narrow integer end such a claim early."""
    check_long_timeouts(part, part, timeouts)


def _start_claim(part: PartitionUnderTest) -> BackgroundCall:
    return BackgroundCall(
        lambda: part.claim("prev_lp", ["y"], 1, blocking=True, timeout_s=20 * LONG_S),
        "a claim beside the long one",
    )


def _expect_woken(claims: list[BackgroundCall], part: PartitionUnderTest) -> None:
    """Put a row for each claim, and expect all to return within the settle time."""
    part.put_labeled(BESIDE, "y")
    deadline = time.monotonic() + part.timeouts.settle
    got = []
    for claim in claims:
        in_time = claim.returned_within(max(0.0, deadline - time.monotonic()))
        expect(
            in_time,
            f"claims that have waited for up to {LONG_S:g} s to return within "
            f"{part.timeouts.settle:g} s of the last row",
            f"{len(got)} of {len(claims)}",
        )
        got += claim.result(0.0).sample_ids
    expect_equal(sorted(got), sorted(BESIDE), "rows of the claims that waited")
