"""Claims that block although they must not, or do not wake when rows become ready."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Timeouts
from rlconform.mutants.memory.helpers import (
    PAGE,
    engine_mutant,
    give_back,
    memory_mutant,
    rows_in,
)
from rlconform.mutants.types import Claimed, Ids, Names, Wait


@engine_mutant("CLAIM-04", evidence="1536 rows ready", may_fail=("CLAIM-05",))
class ClaimLimitedToPage(MemoryEngine):
    """Returns at most 100 rows from a claim: it reads one page of a listing and not the next."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        return super().claim(partition_id, task, names, min(rows, PAGE), wait_s)


@engine_mutant("CLAIM-04", evidence="rows ready, of 8 asked for")
class ClaimPartialBatchWithheld(MemoryEngine):
    """Returns no rows from a non-blocking claim if fewer are ready than asked for (NR-04)."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            if not index.partition(partition_id).is_ready(task, frozenset(names), rows):
                rows = rows if wait_s is not None else 0
        return super().claim(partition_id, task, names, rows, wait_s)


#: A call may take twice as long as an effect, so that only a late claim exceeds its limit.
PATIENT = Timeouts(start=10, operation=2, settle=0.5, quiet=0.1, check=20)


@engine_mutant("CLAIM-04", evidence="a claim that must not block", timeouts=PATIENT)
class ClaimNonBlockingWaits(MemoryEngine):
    """Waits in a non-blocking claim for a full batch if some rows are ready."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            some = index.partition(partition_id).is_ready(task, frozenset(names), 1)
        if wait_s is None and some:
            try:
                return super().claim(partition_id, task, names, rows, 1.0)
            except (TimeoutError, ValueError):  # the batch did not fill, or groups can not fill it
                pass
        return super().claim(partition_id, task, names, rows, wait_s)


@engine_mutant("CLAIM-04", evidence="beside a claim that waits", may_fail=("CLAIM-05",))
class ClaimWaitingReservesRows(MemoryEngine):
    """Reserves ready rows for a waiting claim, so other claims find none until it ends."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        held: list[IndexRow] = []
        while not held or len(held) < rows:
            held += partition.claim(task, required, rows - len(held))
            left = deadline - time.monotonic()
            if len(held) < rows and not self._plane.changed.wait(max(0.0, left)):
                break
        give_back(partition, [row for row in held if row.fields], task)
        if len(held) < rows:
            raise TimeoutError("too few rows")


class _NotifiesOne(threading.Condition):
    def notify_all(self) -> None:
        """Wake only one waiter, as if the plane had one consumer."""
        self.notify()


@engine_mutant("CLAIM-05", evidence="a claim for x to come back")
class ClaimPutWakesOneWaiter(MemoryEngine):
    """Wakes one waiting claim per put (notify, not notify_all), maybe one that needs other rows."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        if owner:
            self._plane.changed = _NotifiesOne()

    def close(self) -> None:
        super().close()
        with self._plane.changed:
            self._plane.changed.notify(len(threading.enumerate()))


@memory_mutant("CLAIM-05", evidence="a put beside 16 claims")
class ClaimsExhaustThreadPool(MemoryClient):
    """Serves calls with four threads, so four waiting claims block the put that they wait for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._threads = threading.Semaphore(4)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        with self._threads:
            return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        with self._threads:
            return super().claim_meta(*args, **kwargs)


@engine_mutant("CLAIM-05", evidence="in place of the one that was cleared")
class ClaimWakesByClearedRows(MemoryEngine):
    """Counts rows as they arrive, so a waiting claim also counts rows that were cleared."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._cleared: Counter[str] = Counter()

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            rows = rows_in(index, partition_id, sample_ids)
            self._cleared[partition_id] += sum(1 for r in rows if r.fields and not r.claimed_by)
        super().clear(partition_id, sample_ids)

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        due = rows + self._cleared[partition_id]
        while not partition.is_ready(task, required, max(0, due - self._cleared[partition_id])):
            if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("too few rows")
            self.check_open()


@memory_mutant("CLAIM-05", evidence="the claim to wait for a second row")
class ClaimDefaultDoesNotBlock(MemoryClient):
    """Does not block by default: the contract says that a claim without ``blocking`` waits."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        return super().claim_meta(*args, **{"blocking": False, **kwargs})


@memory_mutant("CLAIM-05", evidence="the claim to wait for the third row")
class ClaimOfRankNeverBlocks(MemoryClient):
    """Ignores ``blocking`` in a claim with a ``dp_rank`` and returns the rows that are ready."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        if kwargs.get("dp_rank") is not None:
            kwargs["blocking"] = False
        return super().claim_meta(*args, **kwargs)


@engine_mutant(
    "CLAIM-05", evidence="the claim to wait for the third row", may_fail=("TAG-01", "CLAIM-06")
)
class ClaimWakesWithPartialBatch(MemoryEngine):
    """Returns a partial batch from a blocking claim as soon as a put wakes it."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        while not partition.is_ready(task, required, rows):
            if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("too few rows")
            if partition.is_ready(task, required, 1):
                return


@engine_mutant(
    "CLAIM-05",
    "CLAIM-04",
    evidence="the blocked claim to come back within",
    may_fail=("TAG-01", "CLAIM-06", "CLAIM-15"),
    timeouts=PATIENT,
)
class ClaimPollsEveryTwoSeconds(MemoryEngine):
    """Checks every two seconds whether a waiting claim can return, so claims return late."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        deadline = time.monotonic() + (wait_s or 0.0)
        while wait_s is not None:
            try:
                return super().claim(partition_id, task, names, rows, 0.0)
            except TimeoutError:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    raise
                time.sleep(min(2.0, remaining))
        return super().claim(partition_id, task, names, rows, None)


@engine_mutant("CLAIM-05", evidence="the blocked claim to come back")
class ClaimWakesForNewRowsOnly(MemoryEngine):
    """Wakes claims only for new rows, not for the last field of old rows: a later stage hangs."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        while not partition.is_ready(task, required, rows):
            seen = partition._next_age
            while partition._next_age == seen:
                if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError("too few rows")


@memory_mutant(
    "CLAIM-05", "CLAIM-04", evidence="TimeoutError", may_fail=("TAG-01", "CLAIM-06", "CLAIM-15")
)
class ClaimBlocksOnlyThread(MemoryClient):
    """Serves all calls with one thread, so a waiting claim blocks the put it waits for (TQ-02)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._served = threading.Lock()

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        with self._served:
            return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        with self._served:
            return super().claim_meta(*args, **kwargs)


@engine_mutant("CLAIM-05", evidence="one of the claims to wait on")
class ClaimSecondWaiterGetsNothing(MemoryEngine):
    """Wakes all waiting claims for the same rows, so the second returns without any."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        if wait_s is not None:
            with self._locked():
                self._wait_until_ready(partition_id, task, frozenset(names), rows, wait_s)
            time.sleep(0.005)  # the thread needs time to run again
        return super().claim(partition_id, task, names, rows, None)
