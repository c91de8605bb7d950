"""Blocking claims that end too early, too late or in the wrong way, or lose rows at a timeout."""

from __future__ import annotations

import time
from contextlib import suppress

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import DataPlaneError, KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.helpers import (
    claim_meta_mutant,
    claim_mutant,
    give_back,
    partition_of,
    wait_until_ready_mutant,
)
from rlconform.mutants.types import Claimed, Names


@claim_mutant("CLAIM-06", evidence="an end after 5.")
def ClaimTimeoutCappedAtFiveSeconds(claim: MethodCall) -> Claimed:
    """Ends blocking claims after 5 s, its limit for a request, even if ``timeout_s`` is longer."""
    return claim() if claim.wait_s is None else claim(wait_s=min(claim.wait_s, 5.0))


@claim_mutant("CLAIM-06", evidence="timed out", may_fail="CLAIM-05")
def ClaimTimeoutRaisesOwnError(claim: MethodCall) -> Claimed:
    """Raises a general error, not ``TimeoutError``, at the timeout."""
    try:
        return claim()
    except TimeoutError as error:
        raise DataPlaneError("timed out") from error


@claim_mutant("CLAIM-06", evidence="expected TimeoutError; got a claim of", may_fail="CLAIM-05")
def ClaimTimeoutReturnsPartial(claim: MethodCall) -> Claimed:
    """Returns a short or empty batch at the timeout instead of raising ``TimeoutError``."""
    try:
        return claim()
    except TimeoutError:
        return claim(wait_s=None)


@claim_mutant("CLAIM-06", evidence="TimeoutError not before 0.5 s", may_fail="CLAIM-05")
def ClaimTimeoutRoundedDown(claim: MethodCall) -> Claimed:
    """Rounds the timeout down to steps of 0.2 s, so a timeout of 0.5 s ends after 0.4 s."""
    return claim() if claim.wait_s is None else claim(wait_s=claim.wait_s // 0.2 * 0.2)


@claim_mutant("CLAIM-06", evidence="the blocked claim to come back within", may_fail="CLAIM-05")
def ClaimTimeoutCheckedSeldom(claim: MethodCall) -> Claimed:
    """Checks the timeout only every two seconds, so claims end late."""
    return claim() if claim.wait_s is None else claim(wait_s=-(-claim.wait_s // 2.0) * 2.0)


@claim_mutant(
    "CLAIM-06 CLAIM-04",
    evidence="rows still claimable after the timeout",
    may_fail="CLAIM-02 CLAIM-05 CLAIM-15",
)
def ClaimTimeoutLosesRows(claim: MethodCall) -> Claimed:
    """Takes rows as they arrive during a blocking claim, and loses them at the timeout."""
    deadline = time.monotonic() + (claim.wait_s or 0.0)
    ids, tags = claim(wait_s=None)
    while claim.wait_s is not None and len(ids) < claim.rows:
        more_ids, more_tags = claim(rows=1, wait_s=max(0.0, deadline - time.monotonic()))
        ids, tags = ids + more_ids, tags + more_tags
    return ids, tags


@claim_meta_mutant("CLAIM-06", evidence="after another's claim timed out", may_fail="CLAIM-05")
def ClaimTimeoutKeepsRowsForRank(claim: MethodCall) -> KVBatchMeta:
    """Reserves the rows of a claim that timed out for its rank, so other ranks get none of them."""
    task, key = claim.task_name, (claim.partition_id, claim.task_name, claim.dp_rank)
    with claim.plane._engine._locked():
        kept = [row for row in claim.notes.pop(key, ()) if row.fields]
        give_back(partition_of(claim), kept, task)
    try:
        return claim()
    except TimeoutError:
        with claim.plane._engine._locked():
            names = frozenset(claim.required_fields)
            claim.notes[key] = partition_of(claim).claim(task, names, claim.batch_size)
        raise


@wait_until_ready_mutant("CLAIM-06", evidence="it still runs")
def ClaimTimeoutRestarts(wait: MethodCall) -> None:
    """Restarts the timeout at every change in the plane, so it never ends on a busy plane."""
    partition = wait.plane._plane.index.partition(wait.partition_id)
    partition.check_exact(wait.rows)
    while not partition.is_ready(wait.task, wait.required, wait.rows):
        if not wait.plane._plane.changed.wait(wait.wait_s):
            raise TimeoutError("too few rows")


@claim_meta_mutant("CLAIM-06", evidence="it still runs")
def ClaimZeroTimeoutIsDefault(claim: MethodCall) -> KVBatchMeta:
    """Computes ``timeout_s or 60.0``, so a claim with a timeout of 0 waits for a minute."""
    return claim(timeout_s=60.0) if claim.timeout_s == 0 else claim()


@wait_until_ready_mutant("CLAIM-06", evidence="it still runs")
def ClaimTimeoutRestartsOnReadyRows(wait: MethodCall) -> None:
    """Waits for ``timeout_s`` again if more rows have become ready meanwhile.

    Clients whose deadline limits idle time, such as a socket's read timeout, do so.
    """
    partition = wait.plane._plane.index.partition(wait.partition_id)
    ready = -1
    while ready < (ready := len(partition._ready(wait.task, wait.required, wait.rows))):
        with suppress(TimeoutError):
            return wait()
    raise TimeoutError("too few rows")


class CountsRegistrations(MemoryEngine):
    """An engine without a defect that counts the registrations of all partitions."""

    registrations = 0

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self.registrations += 1


@wait_until_ready_mutant("CLAIM-06", evidence="it still runs", plane=CountsRegistrations)
def ClaimTimeoutRestartsOnRegistrations(wait: MethodCall) -> None:
    """Waits for ``timeout_s`` again if any partition was registered meanwhile.

    Planes that look up the partition anew after each change of their registry do so.
    """
    seen = -1
    while seen < (seen := wait.plane.registrations):
        with suppress(TimeoutError):
            return wait()
    raise TimeoutError("too few rows")


@claim_mutant("CLAIM-05", evidence="an end at once", may_fail="CLAIM-06")
def ClaimTimeoutInSixteenBits(claim: MethodCall) -> Claimed:
    """Sends the time that a claim waits as milliseconds in 16 bits."""
    if claim.wait_s is None:
        return claim()
    return claim(wait_s=(int(claim.wait_s * 1e3) & 0xFFFF) / 1e3)
