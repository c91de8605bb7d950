"""Claims that block although they must not, or do not wake when rows become ready."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import suppress

from rlconform.backends.index import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Timeouts
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    PAGE,
    are_ready,
    changes,
    claim_meta_mutant,
    claim_mutant,
    close_mutant,
    find_rows,
    give_back,
    partition_of,
    wait_until_ready_mutant,
)
from rlconform.mutants.types import Claimed, Ids


@claim_mutant("CLAIM-04", evidence="10304 rows ready", may_fail="CLAIM-05")
def ClaimLimitedToPage(claim: MethodCall) -> Claimed:
    """Returns at most 100 rows from a claim, because it reads only one page of a listing."""
    return claim(rows=min(claim.rows, PAGE))


@claim_mutant("CLAIM-04", evidence="rows ready, of 8 asked for")
def ClaimPartialBatchWithheld(claim: MethodCall) -> Claimed:
    """Returns no rows from a non-blocking claim if fewer are ready than asked for (NR-04)."""
    full = claim.wait_s is not None or are_ready(claim, claim.rows)
    return claim() if full else claim(rows=0)


#: Limits that only a late claim exceeds.
PATIENT = Timeouts(start=10, operation=2, settle=0.5, quiet=0.1, check=20)


@claim_mutant("CLAIM-04", evidence="a claim that must not block", timeouts=PATIENT)
def ClaimNonBlockingWaits(claim: MethodCall) -> Claimed:
    """Waits in a non-blocking claim for a full batch if some rows are ready."""
    if claim.wait_s is None and are_ready(claim, 1):
        with suppress(TimeoutError, ValueError):  # the batch did not fill, or groups can't fill it
            return claim(wait_s=1.0)
    return claim()


@wait_until_ready_mutant("CLAIM-04", evidence="beside a claim that waits", may_fail="CLAIM-05")
def ClaimWaitingReservesRows(wait: MethodCall) -> None:
    """Reserves ready rows for a waiting claim, so other claims find none until it ends."""
    reserved: list[IndexRow] = []
    try:
        for partition in changes(wait):
            reserved += partition.claim(wait.task, wait.required, wait.rows - len(reserved))
            if len(reserved) >= max(1, wait.rows):
                return
    finally:
        give_back(partition_of(wait), [row for row in reserved if row.fields], wait.task)


class CountsClears(MemoryEngine):
    """An engine without a defect that counts the rows cleared before any task claimed them."""

    _cleared = State(Counter[str])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        rows = find_rows(self, partition_id, sample_ids)
        self._cleared[partition_id] += sum(1 for r in rows if r.fields and not r.claimed_by)
        super().clear(partition_id, sample_ids)


@wait_until_ready_mutant(
    "CLAIM-05", evidence="in place of the one that was cleared", plane=CountsClears
)
def ClaimWakesByClearedRows(wait: MethodCall) -> None:
    """Counts rows when they are put, so a waiting claim also counts rows that were cleared."""
    cleared = wait.plane._cleared
    due = wait.rows + cleared[wait.partition_id]
    for partition in changes(wait):
        if partition.is_ready(wait.task, wait.required, max(0, due - cleared[wait.partition_id])):
            return


@claim_mutant("CLAIM-05", evidence="in place of the one that was cleared", may_fail="CLAIM-10")
def ClaimWaitingReturnsClearedRows(claim: MethodCall) -> Claimed:
    """Collects ready ids during a blocking claim, and returns also those cleared meanwhile."""
    seen: dict[str, IndexRow] = {}
    with claim.plane._locked():
        for partition in changes(claim) if claim.wait_s is not None else ():
            ready = partition.claim(claim.task, frozenset(claim.names), claim.rows)
            give_back(partition, ready, claim.task)
            seen.update((row.sample_id, row) for row in ready)
            seen = {i: row for i, row in seen.items() if claim.task not in row.claimed_by}
            if len(seen) >= claim.rows:
                break
        gone = [i for i, row in seen.items() if not row.fields][: claim.rows]
        ids, tags = claim(rows=claim.rows - len(gone), wait_s=None)
    return gone + ids, [{} for _ in gone] + tags


@claim_meta_mutant("CLAIM-05", evidence="the claim to wait for a second row")
def ClaimDefaultDoesNotBlock(claim: MethodCall) -> KVBatchMeta:
    """Does not block in a claim without the argument ``blocking``, which must wait by default."""
    return claim() if "blocking" in claim.given else claim(blocking=False)


@claim_meta_mutant("CLAIM-05", evidence="the claim to wait for the third row")
def ClaimOfRankNeverBlocks(claim: MethodCall) -> KVBatchMeta:
    """Ignores ``blocking`` in a claim with a ``dp_rank`` and returns the rows that are ready."""
    return claim() if claim.dp_rank is None else claim(blocking=False)


@wait_until_ready_mutant(
    "CLAIM-05", evidence="the claim to wait for the third row", may_fail="TAG-01 CLAIM-06"
)
def ClaimWakesWithPartialBatch(wait: MethodCall) -> None:
    """Returns a partial batch from a blocking claim as soon as a put wakes it."""
    for n, partition in enumerate(changes(wait)):
        if partition.is_ready(wait.task, wait.required, 1 if n else wait.rows):
            return


@claim_mutant(
    "CLAIM-05 CLAIM-04",
    evidence="the blocked claim to come back within",
    may_fail="TAG-01 CLAIM-06 CLAIM-15",
    timeouts=PATIENT,
)
def ClaimPollsEveryTwoSeconds(claim: MethodCall) -> Claimed:
    """Checks every two seconds whether a waiting claim can return, so claims return late."""
    deadline = time.monotonic() + (claim.wait_s or 0.0)
    while claim.wait_s is not None:
        try:
            return claim(wait_s=0.0)
        except TimeoutError:
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise
            time.sleep(min(2.0, remaining))
    return claim(wait_s=None)


@wait_until_ready_mutant("CLAIM-05", evidence="the blocked claim to come back")
def ClaimWakesForNewRowsOnly(wait: MethodCall) -> None:
    """Wakes claims only for new rows, so a stage that waits for a field of old rows hangs."""
    seen = -1
    for partition in changes(wait):
        new, seen = partition._next_age != seen, partition._next_age
        if new and partition.is_ready(wait.task, wait.required, wait.rows):
            return


@close_mutant("CLAIM-16", evidence="the blocked claim to come back")
def CloseLeavesClaimsWaiting(close: MethodCall) -> None:
    """Closes without waking the claims that wait, so they end only at their timeout."""
    changed = close.plane._plane.changed
    wake, changed.notify_all = changed.notify_all, lambda: None
    try:
        close()
    finally:
        changed.notify_all = wake


@wait_until_ready_mutant("CLAIM-05", evidence="the blocked claim to come back")
def ClaimWaitsForOldRegistration(wait: MethodCall) -> None:
    """Waits on the queue of its own registration, so after another one it misses all rows.

    Planes with a topic or condition variable for each registration of a partition do so.
    """
    queues = None
    for partition in changes(wait):
        queues = queues or partition._queues
        ready = partition.is_ready(wait.task, wait.required, wait.rows)
        if ready and queues is partition._queues:
            return


def _wait_for_news(wait: MethodCall, news_of: Callable[[Collection[IndexRow]], list[int]]) -> None:
    """Look whether the rows suffice at first, and then only when the news of the rows change."""
    seen = None
    for partition in changes(wait):
        if (news := news_of(partition._rows.values())) != seen:
            seen = news
            if partition.is_ready(wait.task, wait.required, wait.rows):
                return


@wait_until_ready_mutant("CLAIM-05", evidence="nothing: it still runs")
def ClaimWaitsForFieldsLackingAtFirst(wait: MethodCall) -> None:
    """Wakes a claim only for puts of the fields that some row lacked when it began to wait.

    Of later rows, another field may be the last one that is put.
    """
    at_first = partition_of(wait)._rows.values()
    lacking = {name for name in wait.required if any(name not in row.fields for row in at_first)}
    topics = sorted(lacking or wait.required)
    _wait_for_news(wait, lambda rows: [sum(name in row.fields for row in rows) for name in topics])


@wait_until_ready_mutant("CLAIM-05", evidence="nothing: it still runs")
def ClaimWatchesWhatTheOldestRowLacks(wait: MethodCall) -> None:
    """Wakes a claim only for new rows, and for puts of a field that the oldest row lacks."""

    def news_of(rows: Collection[IndexRow]) -> list[int]:
        oldest = next((row for row in rows if not row.fields >= wait.required), None)
        watched = () if oldest is None else sorted(wait.required - oldest.fields)[:1]
        return [len(rows), *(sum(name in row.fields for row in rows) for name in watched)]

    _wait_for_news(wait, news_of)


@claim_mutant("CLAIM-05", evidence="timed out at once")
def ClaimTimeoutOverflowsMilliseconds(claim: MethodCall) -> Claimed:
    """Sends ``timeout_s`` in ms as a signed integer of 32 bits, which a month makes negative."""
    if claim.wait_s is None:
        return claim()
    sent = (int(claim.wait_s * 1000) + (1 << 31)) % (1 << 32) - (1 << 31)
    if sent < 0 and not are_ready(claim, claim.rows):
        raise TimeoutError("timed out at once")
    return claim()
