"""Statuses that say that all is consumed when it isn't, or never say it."""

from __future__ import annotations

from tensordict import TensorDictBase

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import Tags, UnknownPartition
from rlconform.mutants.engines import breaks, breaks_engine, rows_in


@breaks_engine("STAT-01", "STAT-03", says="for a second task that claimed nothing")
class AsksAnyTask(MemoryEngine):
    """Says that all is consumed once one of the tasks has consumed it."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether a task has claimed every row."""
        has_claimed_all = super().all_claimed
        return any(has_claimed_all(partition_id, [task]) for task in tasks)


@breaks_engine("STAT-01", says="after one more row")
class RemembersThatAllWasClaimed(MemoryEngine):
    """Remembers that a partition was consumed, until it is registered or cleared."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._done: set[tuple[str, ...]] = set()

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every row was claimed, now or before."""
        if super().all_claimed(partition_id, tasks):
            self._done.add((partition_id, *tasks))
        return (partition_id, *tasks) in self._done

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Register, and forget."""
        super().register(partition_id, tasks, group_size)
        self._done = {key for key in self._done if key[0] != partition_id}

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Clear, and forget."""
        super().clear(partition_id, sample_ids)
        self._done = {key for key in self._done if key[0] != partition_id}


class _CountsClaims(MemoryEngine):
    """Compares a count of claims, which no clear makes smaller, with the rows that are there."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether each task has claimed as many rows as there are."""
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

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, and remember the claims of them."""
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


@breaks_engine("STAT-01", says="for new rows after every earlier one was cleared")
class CountsClaimsForGood(_CountsClaims):
    """Counts claims and never takes any back: a step's count opens the barrier of the next."""

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Register; an empty partition starts to count anew."""
        super().register(partition_id, tasks, group_size)
        with self._locked() as index:
            if not index.partition(partition_id)._rows:
                for task in tasks:
                    self.__dict__.get("_gone", {}).pop((partition_id, task), None)


@breaks_engine("STAT-01", says="check_consumption_status False")
class CountsClaimsOfTheStep(_CountsClaims):
    """Counts claims until a partition is empty: rows dropped half-way open the barrier."""

    lasts = False


@breaks_engine("STAT-03", says="False or an error for an unknown task")
class PassesOverUnknownTasks(MemoryEngine):
    """Asks those of the named tasks that it knows: of a mistyped one, none."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether the tasks that are known have claimed every row."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            known = [task for task in tasks if partition and task in partition._tasks]
        return super().all_claimed(partition_id, known)


@breaks_engine("STAT-03", says="False or an error for an unknown task")
class PassesOverStrangers(MemoryEngine):
    """Asks those of the named tasks that it knows, if it knows any."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether the tasks that are known have claimed every row."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            known = [task for task in tasks if partition and task in partition._tasks]
        return super().all_claimed(partition_id, known or tasks)


@breaks_engine(
    "STAT-03", "STAT-01", "GET-08", "GET-11", "REG-04", says="for a task that claimed nothing"
)
class PassesOverIdleTasks(MemoryEngine):
    """Asks the tasks that have a cursor, which a task gets with its first claim."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether the tasks that have begun have claimed every row."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            begun = [t for t in tasks if (partition and partition._claimed[t]) or not partition]
            idle = [t for t in tasks if partition and t not in begun and t in partition._tasks]
        return super().all_claimed(partition_id, [t for t in tasks if t not in idle])


@breaks_engine("STAT-04", says="before the first row")
class IsDoneBeforeTheStart(MemoryEngine):
    """Finds nothing unclaimed where nothing was ever put, and calls it consumed (NR-05)."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether no row is unclaimed."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            empty = partition is not None and not partition._rows
            if partition is not None and empty:
                return partition._tasks >= set(tasks)
        return super().all_claimed(partition_id, tasks)


@breaks("STAT-04", says="UnknownPartition")
class KnowsNothingOfAnEmptyPartition(MemoryClient):
    """Raises for a partition that nothing was put in yet, where the answer is no."""

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether every row was claimed."""
        answer = super().check_consumption_status(partition_id, task_names)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            partition = index._partitions.get(partition_id)
            if partition is not None and not partition._ever_produced:
                raise UnknownPartition(f"no rows in {partition_id!r}")
        return answer


@breaks_engine("STAT-05", says="with every produced row claimed")
class CountsRowsOfTagsAlone(MemoryEngine):
    """Counts a row that has tags and no field yet: nobody can claim it, and the barrier stays."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every row was claimed, and none has tags alone."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            bare = partition is not None and partition._produced < len(partition._rows)
        return not bare and super().all_claimed(partition_id, tasks)


@breaks_engine("STAT-05", says="once the unclaimed row was cleared", may_fail=("STAT-01",))
class CountsWhatWasProduced(MemoryEngine):
    """Compares claims with all rows ever produced: one that was dropped unclaimed is missing."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._missing: set[tuple[str, str]] = set()  # partitions and tasks

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, and note who had not claimed them."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            for row in rows_in(index, partition_id, sample_ids):
                if partition is not None and row.fields:
                    missed = partition._tasks - row.claimed_by
                    self._missing |= {(partition_id, task) for task in missed}
        super().clear(partition_id, sample_ids)

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every row that ever was was claimed."""
        missing = any((partition_id, task) in self._missing for task in tasks)
        return not missing and super().all_claimed(partition_id, tasks)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put; a partition that was emptied starts to count anew."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            if partition is not None and not partition._rows:
                self._missing = {key for key in self._missing if key[0] != partition_id}
        super().put(partition_id, sample_ids, fields, tags)


@breaks_engine("REG-04", says="whatever waits in the other", may_fail=("STAT-01",))
class CountsRowsOfAllPartitions(MemoryEngine):
    """Compares with the rows of all partitions: train is never done while val has rows."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every row there is was claimed by the tasks that its partition has."""
        with self._locked() as index:
            return super().all_claimed(partition_id, tasks) and all(
                not partition._produced or partition.all_claimed(tasks)
                for partition in index._partitions.values()
                if partition._tasks.issuperset(tasks)
            )


@breaks_engine("STAT-01", says="of a field that nobody declared")
class CountsRowsOfDeclaredFields(MemoryEngine):
    """Counts the rows that have a field of the schema: those of others alone are nobody's."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._first: dict[str, frozenset[str]] = {}  # what a partition's first put brought

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and take what comes first for the schema."""
        super().put(partition_id, sample_ids, fields, tags)
        if fields is not None:
            self._first.setdefault(partition_id, frozenset(map(str, fields.keys())))

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether the rows of the schema were claimed."""
        if super().all_claimed(partition_id, tasks):
            return True
        schema = self._first.get(partition_id, frozenset())
        with self._locked() as index:
            rows = [row for row in rows_in(index, partition_id, None) if row.fields & schema]
            known = bool(rows) and index.partition(partition_id)._tasks.issuperset(tasks)
            return known and all(row.claimed_by.issuperset(tasks) for row in rows)
