"""Claims that return a row twice, or never."""

from __future__ import annotations

from collections import Counter, deque

from tensordict import TensorDict

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownField
from rlconform.mutants.memory.helpers import (
    claimed_rows,
    engine_mutant,
    give_back,
    mark,
    rows_in,
)
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names, Wait


@engine_mutant("CLAIM-02", evidence="rows not yet claimed", may_fail=("CLAIM-10", "CLEAR-01"))
class ClaimCursorCountsFromFront(MemoryEngine):
    """Stores a cursor as a count of claimed rows: clearing some makes it skip unclaimed rows."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._passed_over: Counter[tuple[str, str]] = Counter()

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                self._passed_over.update((partition_id, task) for task in row.claimed_by)
        super().clear(partition_id, sample_ids)
        if not rows_in(index, partition_id, None):  # an empty partition restarts its count
            for key in [key for key in self._passed_over if key[0] == partition_id]:
                del self._passed_over[key]

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        over = self._passed_over.pop((partition_id, task), 0)
        if over:
            super().claim(partition_id, task, names, over, None)
        return super().claim(partition_id, task, names, rows, wait_s)


class _QueuesAgain(MemoryEngine):
    """Queues rows of a put again for tasks that have claimed them."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            old = [row for row in known if self.queues(row, names)]
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in old:
                for task in row.claimed_by:
                    give_back(index.partition(partition_id), [row], task)

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        """Whether a put of these fields queues the row again."""
        raise NotImplementedError


@engine_mutant(
    "CLAIM-08", evidence="rows claimed again after a write", may_fail=("CLAIM-10", "STAT-01")
)
class ClaimRepeatsOverwrittenRows(_QueuesAgain):
    """Queues a row again when a field is overwritten, so tasks claim it twice."""

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        return bool(row.fields & names)


@engine_mutant("CLAIM-08", evidence="rows claimed again", may_fail=("CLAIM-02", "CLAIM-10"))
class ClaimRepeatsGrownRows(_QueuesAgain):
    """Queues a row again when it gets a new field, also for tasks that have claimed it."""

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        return bool(names - row.fields)


@engine_mutant(
    "CLAIM-08",
    evidence="rows claimed again after a put of tags",
    may_fail=("CLAIM-02", "TAG-01", "CLAIM-10", "STAT-01"),
)
class ClaimRepeatsStampedRows(_QueuesAgain):
    """Queues rows again after a put of tags alone, so tasks claim them twice."""

    def queues(self, row: IndexRow, names: set[str]) -> bool:
        return not names


@engine_mutant(
    "CLAIM-08", evidence="rows claimed again by other fields", may_fail=("CLAIM-02", "CLAIM-10")
)
class ClaimCursorPerFieldList(MemoryEngine):
    """Starts from the first row again when a task requires other fields than before."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        cursor = f"{task}|{sorted(names)}"
        with self._locked() as index:
            partition = index.partition(partition_id)
            if task in partition._tasks:
                partition._tasks.add(cursor)
        came = super().claim(partition_id, cursor, names, rows, wait_s)
        with self._locked() as index:
            for row in rows_in(index, partition_id, came[0]):
                if task not in row.claimed_by:
                    mark(index.partition(partition_id), [row], task)
        return came


@engine_mutant(
    "CLAIM-09", "SHARD-02", "PUT-13", evidence="it was delivered", may_fail=("PUT-09", "LIFE-05")
)
class GetClaimedRowsDeliveredOnce(MemoryEngine):
    """Returns the values of a claimed row only once, as a queue does, and then drops them."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._delivered: set[tuple[IndexRow, str]] = set()

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        came = super().get(partition_id, sample_ids, names)
        with self._locked() as index:
            rows = rows_in(index, partition_id, sample_ids)
        read = {(row, name) for row in rows for name in names if row.claimed_by}
        if read & self._delivered:
            raise UnknownField("it was delivered")
        self._delivered |= read
        return came


@engine_mutant(
    "CLAIM-09",
    evidence="never put, or cleared",
    may_fail=(
        "REG-03",
        "REG-04",
        "PUT-12",
        "TAG-01",
        "CLAIM-08",
        "STAT-01",
        "CLEAR-01",
        "CLEAR-04",
    ),
)
class ClaimFreesFullyClaimedRows(MemoryEngine):
    """Frees a row when every task has claimed it, before any task has read it."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        came = super().claim(partition_id, task, names, rows, wait_s)
        with self._locked() as index:
            tasks = index.partition(partition_id)._tasks
            claimed = rows_in(index, partition_id, came[0])
            done = [row.sample_id for row in claimed if row.claimed_by >= tasks]
        self.clear(partition_id, done)
        return came


@engine_mutant(
    "CLAIM-10",
    evidence="cleared",
    may_fail=("CLAIM-02", "CLAIM-15", "CLEAR-01", "CLEAR-04", "REG-03"),
)
class ClaimPrefetchesRows(MemoryEngine):
    """Claims twice the rows asked for and returns the rest later, even if cleared by then."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._ahead: dict[tuple[str, str, frozenset[str]], deque[IndexRow]] = {}

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        key = (partition_id, task, frozenset(names))
        with self._locked() as index:
            partition = index.partition(partition_id)
            kept = self._ahead.setdefault(key, deque())
            if wait_s is not None:
                give_back(partition, [row for row in kept if row.fields], task)
                kept.clear()
            elif len(kept) < rows:
                kept += partition.claim(task, key[2], 2 * rows - len(kept))
            if wait_s is None:
                return claimed_rows([kept.popleft() for _ in range(min(rows, len(kept)))])
        return super().claim(partition_id, task, names, rows, wait_s)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        kept = [
            row
            for (where, task, _), rows in self._ahead.items()
            for row in rows
            if where == partition_id and task in tasks and row.fields
        ]
        return not kept and super().all_claimed(partition_id, tasks)
