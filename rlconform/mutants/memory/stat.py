"""Consumption statuses that count the wrong rows or tasks."""

from __future__ import annotations

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownPartition
from rlconform.mutants.memory.helpers import engine_mutant, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags, Names


@engine_mutant("STAT-01", "STAT-03", evidence="for a second task that claimed nothing")
class StatusAnyTaskSuffices(MemoryEngine):
    """Reports a partition as consumed when one of the named tasks has consumed it."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        has_claimed_all = super().all_claimed
        return any(has_claimed_all(partition_id, [task]) for task in tasks)


@engine_mutant("STAT-01", evidence="after one more row")
class StatusTrueIsCached(MemoryEngine):
    """Caches that a partition is consumed until it is registered or cleared, despite new rows."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._done: set[tuple[str, ...]] = set()

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        if super().all_claimed(partition_id, tasks):
            self._done.add((partition_id, *tasks))
        return (partition_id, *tasks) in self._done

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._done = {key for key in self._done if key[0] != partition_id}

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        self._done = {key for key in self._done if key[0] != partition_id}


class _CountsClaims(MemoryEngine):
    """Compares a count of claims, which a clear does not reduce, with the number of rows."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        before = super().all_claimed(partition_id, tasks)
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            gone = self.__dict__.get("_gone", {})
            return before or (
                partition is not None
                and partition._produced > 0
                and all(
                    task in partition._tasks
                    and partition._claimed[task] + gone.get((partition_id, task), 0)
                    >= partition._produced
                    for task in tasks
                )
            )

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        gone = self.__dict__.setdefault("_gone", {})
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            for row in rows_in(index, partition_id, sample_ids):
                for task in row.claimed_by:
                    gone[partition_id, task] = gone.get((partition_id, task), 0) + 1
        super().clear(partition_id, sample_ids)
        if not self.lasts and partition is not None and not partition._rows:
            for task in partition._tasks:
                gone.pop((partition_id, task), None)

    lasts = True


@engine_mutant("STAT-01", evidence="for new rows after every earlier one was cleared")
class StatusClaimsNeverForgotten(_CountsClaims):
    """Keeps counting claims of cleared rows, so one step's claims open the next step's barrier."""

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        with self._locked() as index:
            if not index.partition(partition_id)._rows:
                for task in tasks:
                    self.__dict__.get("_gone", {}).pop((partition_id, task), None)


@engine_mutant("STAT-01", evidence="check_consumption_status False")
class StatusClearedClaimsCounted(_CountsClaims):
    """Counts claims of cleared rows until the partition is empty, so it opens the barrier early."""

    lasts = False


@engine_mutant("STAT-01", evidence="of a field that nobody declared")
class StatusUndeclaredFieldsIgnored(MemoryEngine):
    """Ignores rows that have only undeclared fields, so it reports them as consumed."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._first: dict[str, frozenset[str]] = {}  # fields of a partition's first put

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        if fields is not None:
            self._first.setdefault(partition_id, frozenset(map(str, fields.keys())))

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        if super().all_claimed(partition_id, tasks):
            return True
        schema = self._first.get(partition_id, frozenset())
        with self._locked() as index:
            rows = [row for row in rows_in(index, partition_id, None) if row.fields & schema]
            known = bool(rows) and index.partition(partition_id)._tasks.issuperset(tasks)
            return known and all(row.claimed_by.issuperset(tasks) for row in rows)


@engine_mutant("STAT-03", evidence="an unknown task")
class StatusUnknownTaskOfEmptyIsTrue(MemoryEngine):
    """Reports an empty partition as consumed for an unknown task."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            if partition is not None and not partition._rows and set(tasks) - partition._tasks:
                return True
        return super().all_claimed(partition_id, tasks)


@engine_mutant("STAT-03", evidence="False or an error for an unknown task")
class StatusUnknownTasksIgnored(MemoryEngine):
    """Ignores unknown tasks, so for a mistyped task alone the partition is consumed."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            known = [task for task in tasks if partition and task in partition._tasks]
        return super().all_claimed(partition_id, known)


@engine_mutant("STAT-03", evidence="False or an error for an unknown task")
class StatusUnknownTasksAmongKnownIgnored(MemoryEngine):
    """Ignores unknown tasks if at least one of the named tasks is known."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            known = [task for task in tasks if partition and task in partition._tasks]
        return super().all_claimed(partition_id, known or tasks)


@engine_mutant(
    "STAT-03", "STAT-01", "GET-08", "GET-11", "REG-04", evidence="for a task that claimed nothing"
)
class StatusIdleTasksIgnored(MemoryEngine):
    """Ignores tasks that have not claimed any row yet."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            begun = [t for t in tasks if (partition and partition._claimed[t]) or not partition]
            idle = [t for t in tasks if partition and t not in begun and t in partition._tasks]
        return super().all_claimed(partition_id, [t for t in tasks if t not in idle])


@engine_mutant("STAT-04", evidence="with tags and no row")
class StatusTagsAloneAreTrue(MemoryEngine):
    """Reports a partition as consumed if its rows have only tags."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            rows = rows_in(index, partition_id, None)
        return super().all_claimed(partition_id, tasks) or (
            bool(rows) and not any(row.fields for row in rows)
        )


@engine_mutant("STAT-04", evidence="before the first row")
class StatusEmptyPartitionIsTrue(MemoryEngine):
    """Reports a partition as consumed before any row is put (NR-05)."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            empty = partition is not None and not partition._rows
            if partition is not None and empty:
                return partition._tasks >= set(tasks)
        return super().all_claimed(partition_id, tasks)


@memory_mutant("STAT-04", evidence="UnknownPartition")
class StatusEmptyPartitionRaises(MemoryClient):
    """Raises an error for a partition without rows, where the answer is False."""

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        answer = super().check_consumption_status(partition_id, task_names)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            partition = index._partitions.get(partition_id)
            if partition is not None and not partition._ever_produced:
                raise UnknownPartition(f"no rows in {partition_id!r}")
        return answer


@engine_mutant("STAT-05", evidence="with every produced row claimed")
class StatusTagOnlyRowsCounted(MemoryEngine):
    """Counts rows that have only tags, which no task can claim, so the barrier never opens."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            bare = partition is not None and partition._produced < len(partition._rows)
        return not bare and super().all_claimed(partition_id, tasks)


@engine_mutant("STAT-05", evidence="once the unclaimed row was cleared", may_fail=("STAT-01",))
class StatusUnclaimedClearedRowsCounted(MemoryEngine):
    """Counts rows that were cleared unclaimed, so the barrier never opens."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._missing: set[tuple[str, str]] = set()  # pairs of partition and task

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            for row in rows_in(index, partition_id, sample_ids):
                if partition is not None and row.fields:
                    missed = partition._tasks - row.claimed_by
                    self._missing |= {(partition_id, task) for task in missed}
        super().clear(partition_id, sample_ids)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        missing = any((partition_id, task) in self._missing for task in tasks)
        return not missing and super().all_claimed(partition_id, tasks)

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            if partition is not None and not partition._rows:
                self._missing = {key for key in self._missing if key[0] != partition_id}
        super().put(partition_id, sample_ids, fields, tags)
