"""Planes on which several claims that wait at once hinder each other or other calls."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    are_ready,
    changes,
    claim_mutant,
    engine_mutant,
    memory_mutant,
    wait_until_ready_mutant,
)
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags, Names


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


#: Characters of the ids of a put for which a message to those who wait has room.
MESSAGE = 8_000


class _MayBeSilent(threading.Condition):
    silent = False

    def notify_all(self) -> None:
        """Wake all waiters, unless silent."""
        if not self.silent:
            super().notify_all()


@engine_mutant("CLAIM-05", evidence="the blocked claim to come back")
class LargePutsWakeNobody(MemoryEngine):
    """Tells claims that wait which rows came, by a message that has no room for a large put's ids.

    They look once more when their time is up.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        if owner:
            self._plane.changed = _MayBeSilent()

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        changed = self._plane.changed
        assert isinstance(changed, _MayBeSilent)
        with changed:
            changed.silent = sum(map(len, ids)) >= MESSAGE
            try:
                super().put(partition_id, ids, fields, tags)
            finally:
                changed.silent = False


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


@wait_until_ready_mutant("CLAIM-05", evidence="the newer claim to come back")
def ClaimsServedInTurn(wait: MethodCall) -> None:
    """Serves the waiting claims of a task strictly in turn, so all wait behind a large first one.

    Fair queues and locks do so.
    """
    waiting, this = wait.notes.setdefault((wait.partition_id, wait.task), []), object()
    waiting.append(this)
    try:
        for partition in changes(wait):
            first = waiting[0] is this
            if first and partition.is_ready(wait.task, wait.required, wait.rows):
                return
    finally:
        waiting.remove(this)
        wait.plane._plane.changed.notify_all()


@claim_mutant("CLAIM-05", evidence="a claim of train whose row is ready")
def ClaimsWaitInSixteenPlaces(claim: MethodCall) -> Claimed:
    """Has 16 places for claims that may wait, so the 17th isn't served even if its rows are ready.

    Puts and other calls need no place.
    """
    if claim.wait_s is None:
        return claim()
    with claim.notes.setdefault("places", threading.Semaphore(16)):
        return claim()


@claim_mutant("CLAIM-06", evidence="claims that have waited", may_fail="CLAIM-05")
def ClaimLooksAtGrowingPauses(claim: MethodCall) -> Claimed:
    """Looks for rows at pauses that grow to 2.5 s, so a claim that has waited long is served late.

    Clients that poll a server with exponential backoff do so.
    """
    if claim.wait_s is None:
        return claim()
    deadline, pause = time.monotonic() + claim.wait_s, 0.01
    while True:
        with claim.plane._locked():
            if are_ready(claim, claim.rows):
                return claim(wait_s=None)
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("too few rows")
        time.sleep(min(pause, left))  # no event ends a poller's pause
        pause = min(3 * pause, 2.5)


#: Places for claims that wait.
PLACES = 16


@wait_until_ready_mutant("CLAIM-05", evidence="nothing: it still runs")
def ClaimTimedOutKeepsPlace(wait: MethodCall) -> None:
    """Gives a waiting claim one of 16 places, and takes it back only from claims that got rows."""
    taken = wait.notes.setdefault(wait.partition_id, Counter())
    states, has_place = changes(wait), False
    if next(states).is_ready(wait.task, wait.required, wait.rows):
        return
    while True:
        if not has_place and taken["places"] < PLACES:
            has_place = True
            taken["places"] += 1
        if next(states).is_ready(wait.task, wait.required, wait.rows) and has_place:
            taken["places"] -= 1
            return


@engine_mutant("CLAIM-05", evidence="one of the claims to wait on", may_fail="CLAIM-02 CLAIM-08")
class ClaimWaitsAndTakesApart(MemoryEngine):
    """Waits for enough rows in one request and takes them in another, after other claims took some.

    A claim that finds fewer rows returns these.
    """

    def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: float | None
    ) -> Claimed:
        if wait_s is None:
            return super().claim(partition_id, task, names, rows, None)
        deadline = time.monotonic() + wait_s
        while True:
            left = max(0.0, deadline - time.monotonic())
            with self._locked():
                self._wait_until_ready(partition_id, task, frozenset(names), rows, left)
            time.sleep(0.02)  # the way of the second request
            taken: Claimed = super().claim(partition_id, task, names, rows, None)
            if taken[0] or not left:
                return taken
