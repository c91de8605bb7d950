"""Claims that wait too little or too long, wake for the wrong reason, or lose rows on the way."""

from __future__ import annotations

import threading
import time
from typing import Any

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import DataPlaneError, KVBatchMeta, Tags, Timeouts
from rlconform.mutants.engines import breaks, breaks_engine, give_back

Claimed = tuple[list[str], list[Tags]]

#: A call may take twice as long as an effect, so that a late claim alone is late.
PATIENT = Timeouts(start=10, operation=2, settle=0.5, quiet=0.1, check=20)


@breaks_engine("CLAIM-04", says="rows ready, of 8 asked for")
class ServesWholeBatches(MemoryEngine):
    """A claim that doesn't block gets a whole batch or nothing: a step's tail stays (NR-04)."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows if there are as many."""
        with self._locked() as index:
            if not index.partition(partition_id).is_ready(task, frozenset(names), rows):
                rows = rows if wait_s is not None else 0
        return super().claim(partition_id, task, names, rows, wait_s)


@breaks_engine("CLAIM-04", says="a claim that must not block", timeouts=PATIENT)
class LingersForAFullBatch(MemoryEngine):
    """Where some rows are ready it waits for the batch to fill, though it was not to block."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, of a fuller batch where there is one to come."""
        with self._locked() as index:
            some = index.partition(partition_id).is_ready(task, frozenset(names), 1)
        if wait_s is None and some:
            try:
                return super().claim(partition_id, task, names, rows, 1.0)
            except (TimeoutError, ValueError):  # it didn't fill, or can't be filled by groups
                pass
        return super().claim(partition_id, task, names, rows, wait_s)


@breaks_engine(
    "CLAIM-05", says="the claim to wait for the third row", may_fail=("TAG-01", "CLAIM-06")
)
class WakesWithWhatIsThere(MemoryEngine):
    """A claim that a put wakes goes on with what is ready then, a whole batch or not."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        """Wait until something has come."""
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        while not partition.is_ready(task, required, rows):
            if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("too few rows")
            if partition.is_ready(task, required, 1):
                return


@breaks_engine(
    "CLAIM-05",
    "CLAIM-04",
    says="the blocked claim to come back within",
    may_fail=("TAG-01", "CLAIM-06", "CLAIM-15"),
    timeouts=PATIENT,
)
class LooksSeldom(MemoryEngine):
    """A claim that waits looks every other second whether it still has to."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, looking for them now and then."""
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


@breaks_engine("CLAIM-05", says="the blocked claim to come back")
class WakesForNewRowsOnly(MemoryEngine):
    """Only new rows wake a claim, and not the last field of old ones: a stage sleeps on."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        """Wait, looking again when there are more rows."""
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        deadline = time.monotonic() + wait_s
        while not partition.is_ready(task, required, rows):
            seen = partition._next_age
            while partition._next_age == seen:
                if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                    raise TimeoutError("too few rows")


@breaks("CLAIM-05", "CLAIM-04", says="TimeoutError", may_fail=("TAG-01", "CLAIM-06", "CLAIM-15"))
class WaitsInItsOneThread(MemoryClient):
    """One thread serves all calls: a waiting claim keeps out the put that it waits for (TQ-02)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._served = threading.Lock()

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Put, when no other call is served."""
        with self._served:
            return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, when no other call is served."""
        with self._served:
            return super().claim_meta(*args, **kwargs)


@breaks_engine("CLAIM-05", says="one of the claims to wait on")
class TellsAllWhoWait(MemoryEngine):
    """Rows that come are told to all claims that wait, and the second goes away with nothing."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Wait for rows, and claim what is there."""
        if wait_s is not None:
            with self._locked():
                self._wait_until_ready(partition_id, task, frozenset(names), rows, wait_s)
            time.sleep(0.005)  # until it runs again
        return super().claim(partition_id, task, names, rows, None)


@breaks_engine("CLAIM-06", says="timed out")
class RaisesItsOwnTimeout(MemoryEngine):
    """Raises its own error when the time is up, as for anything that fails."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows."""
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except TimeoutError as error:
            raise DataPlaneError("timed out") from error


@breaks_engine("CLAIM-06", says="expected TimeoutError; got a claim of")
class GivesWhatThereIsInTheEnd(MemoryEngine):
    """Hands out what is ready when the time is up, a short batch or an empty one."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows."""
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except TimeoutError:
            return super().claim(partition_id, task, names, rows, None)


@breaks_engine("CLAIM-06", says="TimeoutError not before 0.5 s")
class WaitsWholeTurns(MemoryEngine):
    """Waits in turns of 0.2 s, as many as fit in the time: 0.5 s are over after 0.4."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows."""
        turns = wait_s if wait_s is None else wait_s // 0.2 * 0.2
        return super().claim(partition_id, task, names, rows, turns)


@breaks_engine("CLAIM-06", says="the blocked claim to come back within")
class LooksAtTheClockSeldom(MemoryEngine):
    """Sees that the time is up when it next wakes, every other second."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows."""
        turns = wait_s if wait_s is None else -(-wait_s // 2.0) * 2.0
        return super().claim(partition_id, task, names, rows, turns)


@breaks_engine(
    "CLAIM-06",
    "CLAIM-04",
    says="rows still claimable after the timeout",
    may_fail=("CLAIM-02", "CLAIM-05", "CLAIM-15"),
)
class LosesWhatItGathered(MemoryEngine):
    """A claim that waits takes rows as they come, and keeps them when the time is up."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, one by one while it waits."""
        if wait_s is None:
            return super().claim(partition_id, task, names, rows, None)
        deadline = time.monotonic() + wait_s
        gathered = super().claim(partition_id, task, names, rows, None)
        while len(gathered[0]) < rows:
            left = max(0.0, deadline - time.monotonic())
            more = super().claim(partition_id, task, names, 1, left)
            gathered = (gathered[0] + more[0], gathered[1] + more[1])
        return gathered


@breaks_engine("CLAIM-06", says="it still runs")
class StartsTheClockAnew(MemoryEngine):
    """Counts the time from whatever happened last in the plane: in a busy one it is never up."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        """Wait until rows are ready, or nothing has happened for ``wait_s``."""
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        while not partition.is_ready(task, required, rows):
            if not self._plane.changed.wait(wait_s):
                raise TimeoutError("too few rows")


@breaks("CLAIM-06", says="it still runs")
class TakesZeroSecondsForTheDefault(MemoryClient):
    """Writes ``timeout_s or 60.0``: a claim that is to wait for no time at all waits a minute."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        if kwargs.get("timeout_s") == 0:
            del kwargs["timeout_s"]
        return super().claim_meta(*args, **kwargs)


@breaks_engine("CLAIM-04", says="beside a claim that waits", may_fail=("CLAIM-05",))
class ReservesWhileItWaits(MemoryEngine):
    """A claim that waits holds what is ready till it has enough or gives up: others find none."""

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        """Wait until rows are ready, hiding those that are."""
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
