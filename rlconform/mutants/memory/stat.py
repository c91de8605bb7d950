"""Consumption statuses that count the wrong rows or tasks."""

from __future__ import annotations

from collections import Counter

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownPartition
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    all_claimed_mutant,
    check_consumption_status_mutant,
    clear_mutant,
    engine_mutant,
    find_rows,
    held,
    known_rows,
    names_of,
    partition_of,
    partitions_of,
)
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names, Wait


@all_claimed_mutant("STAT-01 STAT-03", evidence="for a second task that claimed nothing")
def StatusAnyTaskSuffices(status: MethodCall) -> bool:
    """Reports a partition as consumed when one of the named tasks has consumed it."""
    return any(status(tasks=[task]) for task in status.tasks)


@engine_mutant("STAT-01", evidence="after one more row")
class StatusTrueIsCached(MemoryEngine):
    """Caches that a partition is consumed until it is registered or cleared, despite new rows."""

    _done = State(set[tuple[str, ...]])

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


@all_claimed_mutant("STAT-01", evidence="with a claimed row replaced by a new one")
def StatusTrueCachedByRowCount(status: MethodCall) -> bool:
    """Caches True with the number of rows, and returns it again whenever the number is the same."""
    key, produced = (status.partition_id, *status.tasks), partition_of(status)._produced
    if status():
        status.notes[key] = produced
    return bool(status.notes.get(key) == produced)


#: Rows up to which a count of hits is exact.
COUNTED = 10_000


@all_claimed_mutant("STAT-01", evidence="rows unclaimed")
def StatusCountsToTenThousand(status: MethodCall) -> bool:
    """Compares how many rows there are with how many are claimed, and counts both to 10,000."""
    rows = [row for row in partition_of(status)._rows.values() if row.fields]
    hits = [sum(task in row.claimed_by for row in rows) for task in status.tasks]
    return bool(status()) or (len(rows) > COUNTED and min(hits, default=0) >= COUNTED)


class _CountsClaims(MemoryEngine):
    """Compares a count of claims, which a clear does not reduce, with the number of rows."""

    _gone = State(Counter[tuple[str, str]])  # claims of cleared rows by partition and task

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        partition = held(self, partition_id)
        return super().all_claimed(partition_id, tasks) or (
            partition._produced > 0
            and partition._tasks.issuperset(tasks)
            and all(
                partition._claimed[task] + self._gone[partition_id, task] >= partition._produced
                for task in tasks
            )
        )

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        for row in find_rows(self, partition_id, sample_ids):
            self._gone.update((partition_id, task) for task in row.claimed_by)
        super().clear(partition_id, sample_ids)

    def forget(self, partition_id: str) -> None:
        """Forget the claims of cleared rows if the partition is empty."""
        if not held(self, partition_id)._rows:
            for task in held(self, partition_id)._tasks:
                del self._gone[partition_id, task]


@engine_mutant(
    "STAT-01", evidence="for new rows after every earlier one was cleared", may_fail="STAT-05"
)
class StatusClaimsNeverForgotten(_CountsClaims):
    """Keeps counting claims of cleared rows, so one step's claims open the next step's barrier."""

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self.forget(partition_id)


@engine_mutant("STAT-01", evidence="check_consumption_status False", may_fail="STAT-05")
class StatusClearedClaimsCounted(_CountsClaims):
    """Counts claims of cleared rows until the partition is empty, so it returns True too early."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        self.forget(partition_id)


@engine_mutant("STAT-01", evidence="of a field that nobody declared")
class StatusUndeclaredFieldsIgnored(MemoryEngine):
    """Ignores rows that have only undeclared fields, so it reports them as consumed."""

    _first = State(dict[str, set[str]])  # fields of a partition's first put

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        if fields is not None:
            self._first.setdefault(partition_id, names_of(fields))

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        schema = self._first.get(partition_id, set())
        rows = [row for row in find_rows(self, partition_id) if row.fields & schema]
        known = bool(rows) and held(self, partition_id)._tasks.issuperset(tasks)
        return super().all_claimed(partition_id, tasks) or (
            known and all(row.claimed_by.issuperset(tasks) for row in rows)
        )


@all_claimed_mutant("STAT-03", evidence="an unknown task")
def StatusUnknownTaskOfEmptyIsTrue(status: MethodCall) -> bool:
    """Reports an empty partition as consumed for an unknown task."""
    if status.partition_id not in partitions_of(status.plane) or partition_of(status)._rows:
        return status()
    return not partition_of(status)._tasks.issuperset(status.tasks) or status()


@all_claimed_mutant("STAT-03", evidence="False or an error for an unknown task")
def StatusUnknownTasksIgnored(status: MethodCall) -> bool:
    """Ignores unknown tasks, so it returns True for a mistyped task alone."""
    return status(tasks=[task for task in status.tasks if task in partition_of(status)._tasks])


@all_claimed_mutant("STAT-03", evidence="False or an error for an unknown task")
def StatusUnknownTasksAmongKnownIgnored(status: MethodCall) -> bool:
    """Ignores unknown tasks if at least one of the named tasks is known."""
    known = [task for task in status.tasks if task in partition_of(status)._tasks]
    return status(tasks=known or status.tasks)


@all_claimed_mutant(
    "STAT-03 STAT-01 GET-08 GET-11 REG-04", evidence="for a task that claimed nothing"
)
def StatusIdleTasksIgnored(status: MethodCall) -> bool:
    """Ignores tasks that have not claimed any row yet."""
    partition = partition_of(status)
    idle = {task for task in partition._tasks if not partition._claimed[task]}
    return status(tasks=[task for task in status.tasks if task not in idle])


@all_claimed_mutant("STAT-04", evidence="with tags and no row")
def StatusTagsAloneAreTrue(status: MethodCall) -> bool:
    """Reports a partition as consumed if its rows have only tags."""
    rows = find_rows(status.plane, status.partition_id)
    return status() or (bool(rows) and not any(row.fields for row in rows))


@all_claimed_mutant("STAT-04", evidence="before the first row")
def StatusEmptyPartitionIsTrue(status: MethodCall) -> bool:
    """Reports a partition as consumed before any row is put (NR-05)."""
    partition = partition_of(status)
    return status() if partition._rows else partition._tasks.issuperset(status.tasks)


@check_consumption_status_mutant("STAT-04", evidence="UnknownPartition")
def StatusEmptyPartitionRaises(status: MethodCall) -> bool:
    """Raises an error for a partition without rows instead of returning False."""
    answer: bool = status()
    known = status.partition_id in partitions_of(status.plane)
    if known and not partition_of(status)._ever_produced:
        raise UnknownPartition(f"no rows in {status.partition_id!r}")
    return answer


@all_claimed_mutant("STAT-05", evidence="with every produced row claimed", may_fail="STAT-01")
def StatusTagOnlyRowsCounted(status: MethodCall) -> bool:
    """Counts rows that have only tags, which no task can claim, so it never returns True."""
    partition = partition_of(status)
    return partition._produced == partition.size and status()


@clear_mutant("STAT-05", evidence="for a task that claimed both rows", may_fail="STAT-01")
def StatusIdClearedTwiceCountedTwice(clear: MethodCall) -> None:
    """Subtracts a row from its counts twice if a clear names the id twice."""
    twice = [i for i, times in Counter(clear.sample_ids).items() if times > 1]
    for row in find_rows(clear.plane, clear.partition_id, twice):
        if row.fields:
            partition_of(clear)._produced -= 1
            partition_of(clear)._claimed.subtract(row.claimed_by)
    clear()


@engine_mutant("STAT-05", evidence="once the unclaimed row was cleared", may_fail="STAT-01")
class StatusUnclaimedClearedRowsCounted(MemoryEngine):
    """Counts rows that were cleared unclaimed, so it never returns True."""

    _missing = State(set[tuple[str, str]])  # pairs of partition and task

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        for row in find_rows(self, partition_id, sample_ids):
            missed = held(self, partition_id)._tasks - row.claimed_by if row.fields else ()
            self._missing |= {(partition_id, task) for task in missed}
        super().clear(partition_id, sample_ids)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        missing = any((partition_id, task) in self._missing for task in tasks)
        return not missing and super().all_claimed(partition_id, tasks)

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        if not held(self, partition_id)._rows:
            self._missing = {key for key in self._missing if key[0] != partition_id}
        super().put(partition_id, sample_ids, fields, tags)


@all_claimed_mutant("STAT-01", evidence="when that row has a field, unclaimed")
def StatusTrueCachedUntilNewId(status: MethodCall) -> bool:
    """Caches True until a row is added or cleared, so first fields of a tagged row don't end it.

    Planes whose cache only inserts and deletes invalidate, and no updates of a row, do so.
    """
    key, rows = (status.partition_id, *status.tasks), find_rows(status.plane, status.partition_id)
    if status():
        status.notes[key] = rows
        return True
    return bool(rows and status.notes.get(key) == rows)


@clear_mutant("STAT-05", evidence="that was not cleared")
def StatusClaimsOfFirstClearedRow(clear: MethodCall) -> None:
    """Counts a clear of 32 or more rows as if all were claimed by the tasks of the first one.

    Planes that update their counters once for a batch, whose rows mostly belong together, do so.
    """
    with clear.plane._locked():
        rows = known_rows(clear)
        for row in rows if len(rows) >= 32 else ():
            row.claimed_by = rows[0].claimed_by
        clear()


@all_claimed_mutant("STAT-03", evidence="alone has claimed all rows", may_fail="STAT-01")
def StatusTasksByPrefix(status: MethodCall) -> bool:
    """Counts the claims of all tasks whose names start with the name that is asked for.

    Key-value planes that add up ``claimed:lp*`` in a scan do so: it finds ``claimed:lp_ref`` too.
    """
    partition = partition_of(status)
    claims = partition._claimed.items()
    totals = [sum(n for task, n in claims if task.startswith(name)) for name in status.tasks]
    known = partition._produced > 0 and partition._tasks.issuperset(status.tasks)
    return status() or (known and min(totals) >= partition._produced)


@clear_mutant("STAT-05", evidence="check_consumption_status", may_fail="STAT-01")
def StatusTasksOfClearedRowsMixed(clear: MethodCall) -> None:
    """Counts cleared rows by how many tasks claimed them, so tasks share a counter.

    Planes that update the counters of a clear once for all rows in one state do so: a row that only
    one task has claimed is in the same state as a row that only another task has claimed.
    """
    with clear.plane._locked():
        tasks: dict[int, frozenset[str]] = {}
        for row in known_rows(clear):
            row.claimed_by = tasks.setdefault(len(row.claimed_by), row.claimed_by)
        clear()


@engine_mutant("STAT-03", evidence="of the other name has claimed all rows")
class StatusCounterKeyAmbiguous(MemoryEngine):
    """Counts claims by ``partition:task``, so (a, b:c) and (a:b, c) share a counter."""

    _claims = State(Counter[str])

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        claimed = super().claim(partition_id, task, names, rows, wait_s)
        self._claims[f"{partition_id}:{task}"] += len(claimed[0])
        return claimed

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked():
            for row in find_rows(self, partition_id, sample_ids):
                self._claims.subtract(f"{partition_id}:{task}" for task in row.claimed_by)
            super().clear(partition_id, sample_ids)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        partition = held(self, partition_id)
        known = partition._produced > 0 and partition._tasks.issuperset(tasks)
        counted = (self._claims[f"{partition_id}:{task}"] for task in tasks)
        return super().all_claimed(partition_id, tasks) or (
            known and min(counted) >= partition._produced
        )
