"""``StandingClaims``: claims that wait all through a long run, beside its other calls.

    run's thread      start ── steps of the run ── finish: puts the rows, and waits for the claims
    threads           └─▶ blocked claims of a task of their own ──────────────────────┘

What a plane keeps for claims that wait, in lists or locks, shows in the calls beside them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import BackgroundCall

#: The field and the task of claims that wait; no other call of a run uses them.
AWAITED, WAITING = "awaited", "waiting"
#: Seconds after which a run ends the claims, and after which they would time out: long enough that
#: no claim times out on a busy machine.
STAND_S, TIMEOUT_S = 3.0, 30.0
#: Rows of a claim.
ROWS = 2


class StandingClaims:
    """``count`` claims of a partition that wait for rows with a field of their own."""

    def __init__(self, part: PartitionUnderTest, count: int) -> None:
        self._part = part
        self._ends_at = time.monotonic() + STAND_S
        self._claims = [
            BackgroundCall(
                lambda: part.claim(WAITING, [AWAITED], ROWS, blocking=True, timeout_s=TIMEOUT_S),
                "a claim that waits",
            )
            for _ in range(count)
        ]

    @property
    def is_due(self) -> bool:
        """Whether the claims have waited so long that their rows must come."""
        return bool(self._claims) and time.monotonic() > self._ends_at

    def finish(
        self, put: Callable[[list[str]], None], known: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """Let ``put`` put the rows of all claims; return their ids, and those that were claimed.

        Up to a half of the rows are of ``known`` ones, which lack the field.
        """
        claims, self._claims = self._claims, []
        ids = [f"awaited{n}" for n in range(ROWS * len(claims))]
        known = known[: len(ids) // 2]
        ids[: len(known)] = known
        if ids:
            put(ids)
        wait_s = self._part.timeouts.settle + self._part.call_s
        return ids, [each for claim in claims for each in claim.result(wait_s).sample_ids]
