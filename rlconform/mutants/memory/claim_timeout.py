"""Blocking claims that have a wrong timeout, or lose rows at it."""

from __future__ import annotations

import time
from typing import Any

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import DataPlaneError, KVBatchMeta
from rlconform.mutants.memory.helpers import engine_mutant, memory_mutant
from rlconform.mutants.types import Claimed, Names, Wait


@engine_mutant("CLAIM-06", evidence="an end after 5.")
class ClaimTimeoutCappedAtFiveSeconds(MemoryEngine):
    """Ends a blocking claim after 5 s, its limit for any request, whatever ``timeout_s`` is."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        wait_s = None if wait_s is None else min(wait_s, 5.0)
        return super().claim(partition_id, task, names, rows, wait_s)


@engine_mutant("CLAIM-06", evidence="timed out")
class ClaimTimeoutRaisesOwnError(MemoryEngine):
    """Raises a general error, not ``TimeoutError``, when the timeout ends."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except TimeoutError as error:
            raise DataPlaneError("timed out") from error


@engine_mutant("CLAIM-06", evidence="expected TimeoutError; got a claim of")
class ClaimTimeoutReturnsPartial(MemoryEngine):
    """Returns a short or empty batch, not ``TimeoutError``, when the timeout ends."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except TimeoutError:
            return super().claim(partition_id, task, names, rows, None)


@engine_mutant("CLAIM-06", evidence="TimeoutError not before 0.5 s")
class ClaimTimeoutRoundedDown(MemoryEngine):
    """Rounds the timeout down to steps of 0.2 s, so 0.5 s end after 0.4 s."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        turns = wait_s if wait_s is None else wait_s // 0.2 * 0.2
        return super().claim(partition_id, task, names, rows, turns)


@engine_mutant("CLAIM-06", evidence="the blocked claim to come back within")
class ClaimTimeoutCheckedSeldom(MemoryEngine):
    """Checks the timeout only every two seconds, so claims end late."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        turns = wait_s if wait_s is None else -(-wait_s // 2.0) * 2.0
        return super().claim(partition_id, task, names, rows, turns)


@engine_mutant(
    "CLAIM-06",
    "CLAIM-04",
    evidence="rows still claimable after the timeout",
    may_fail=("CLAIM-02", "CLAIM-05", "CLAIM-15"),
)
class ClaimTimeoutLosesRows(MemoryEngine):
    """Takes rows as they arrive during a blocking claim, and loses them at the timeout."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        if wait_s is None:
            return super().claim(partition_id, task, names, rows, None)
        deadline = time.monotonic() + wait_s
        gathered = super().claim(partition_id, task, names, rows, None)
        while len(gathered[0]) < rows:
            left = max(0.0, deadline - time.monotonic())
            more = super().claim(partition_id, task, names, 1, left)
            gathered = (gathered[0] + more[0], gathered[1] + more[1])
        return gathered


@engine_mutant("CLAIM-06", evidence="it still runs")
class ClaimTimeoutRestarts(MemoryEngine):
    """Restarts the timeout at every change in the plane, so in a busy plane it never ends."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        while not partition.is_ready(task, required, rows):
            if not self._plane.changed.wait(wait_s):
                raise TimeoutError("too few rows")


@memory_mutant("CLAIM-06", evidence="it still runs")
class ClaimZeroTimeoutIsDefault(MemoryClient):
    """Computes ``timeout_s or 60.0``, so a claim with a timeout of 0 waits for a minute."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        if kwargs.get("timeout_s") == 0:
            del kwargs["timeout_s"]
        return super().claim_meta(*args, **kwargs)
