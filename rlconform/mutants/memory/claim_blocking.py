"""Claims that block although they must not, or do not wake when rows become ready."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rlconform.backends.index import IndexRow, PartitionIndex
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Timeouts
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    PAGE,
    are_ready,
    claim_meta_mutant,
    claim_mutant,
    close_mutant,
    engine_mutant,
    find_rows,
    give_back,
    memory_mutant,
    partition_of,
    wait_until_ready_mutant,
)
from rlconform.mutants.types import Claimed, Ids


@claim_mutant("CLAIM-04", evidence="8192 rows ready", may_fail="CLAIM-05")
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


def changes(wait: MethodCall) -> Iterator[PartitionIndex]:
    """Yield the partition now and after each change; raise ``TimeoutError`` at the timeout."""
    partition = wait.plane._plane.index.partition(wait.partition_id)
    partition.check_exact(wait.rows)
    deadline = time.monotonic() + wait.wait_s
    yield partition
    while wait.plane._plane.changed.wait(max(0.0, deadline - time.monotonic())):
        wait.plane.check_open()
        yield partition
    raise TimeoutError("too few rows")


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


class _NotifiesOne(threading.Condition):
    def notify_all(self) -> None:
        """Wake only one waiter, as if the plane had one consumer."""
        self.notify()


@engine_mutant("CLAIM-05", evidence="a claim for x to come back")
class ClaimPutWakesOneWaiter(MemoryEngine):
    """Wakes only one waiting claim per put (``notify``), perhaps a claim for other rows."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        if owner:
            self._plane.changed = _NotifiesOne()

    def close(self) -> None:
        super().close()
        with self._plane.changed:
            self._plane.changed.notify(len(threading.enumerate()))


class LimitsCalls(MemoryClient):
    """A client that serves puts and claims with a limited number of threads, by default one."""

    threads: Any = State(threading.Lock)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        with self.threads:
            return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        with self.threads:
            return super().claim_meta(*args, **kwargs)


@memory_mutant("CLAIM-05", evidence="a put beside 64 claims")
class ClaimsExhaustThreadPool(LimitsCalls):
    """Serves calls with four threads, so four waiting claims block the put that they wait for."""

    threads = State(lambda: threading.Semaphore(4))


@memory_mutant("CLAIM-05 CLAIM-04", evidence="TimeoutError", may_fail="TAG-01 CLAIM-06 CLAIM-15")
class ClaimBlocksOnlyThread(LimitsCalls):
    """Serves all calls with one thread, so a waiting claim blocks the put it waits for (TQ-02)."""


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


@claim_mutant("CLAIM-05", evidence="one of the claims to wait on")
def ClaimSecondWaiterGetsNothing(claim: MethodCall) -> Claimed:
    """Wakes all waiting claims for the same rows, so the second claim returns no rows."""
    if claim.wait_s is not None:
        names = frozenset(claim.names)
        call = (claim.partition_id, claim.task, names, claim.rows, claim.wait_s)
        with claim.plane._locked():
            claim.plane._wait_until_ready(*call)
        time.sleep(0.005)  # the thread needs time to run again
    return claim(wait_s=None)


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


@wait_until_ready_mutant("CLAIM-05", evidence="the earlier claim to come back")
def ClaimTimeoutRemovesFirstWaiter(wait: MethodCall) -> None:
    """Removes the oldest waiting claim from its list, not the claim that has timed out.

    Servers that assume that claims time out in the order of their calls do so.
    """
    waiting, this = wait.notes.setdefault("waiting", []), object()
    waiting.append(this)
    try:
        for partition in changes(wait):
            if this in waiting and partition.is_ready(wait.task, wait.required, wait.rows):
                waiting.remove(this)
                return
    except BaseException:
        del waiting[:1]
        raise
