"""``TaskQueues``: the ready rows of one partition, by task and required fields, oldest first.

    new rows ──▶ log, by age ──(a claim scans rows that its queue has not seen)──▶ queue
    rows that the queue has scanned ──(the last required field is put)───────────▶ queue

    RowQueue     single rows
    GroupQueue   whole groups only: rows wait until their group is complete

A queue scans each row once, when a claim needs more rows than it has; then puts and clears update
the queue. So a put of new rows updates no queue, and claims cost in proportion to their rows.

The heap entry of a cleared row stays until it reaches the top, or until such entries outnumber the
others, so the cost of taking n rows does not depend on earlier claims or clears.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from rlconform.backends.index.block import Names
from rlconform.backends.index.row import GroupKey, IndexRow

#: Stale entries that a heap may have before it is rebuilt, and cleared rows of a log.
_SLACK, _LOG_SLACK = 64, 256


class RowQueue:
    """Ready rows, which are claimed one by one."""

    def __init__(self) -> None:
        self.scanned = 0  # the age below which all rows of the partition have been scanned
        self._rows: dict[int, IndexRow] = {}  # by age
        self._heap: list[int] = []

    def __len__(self) -> int:
        """Return the number of ready rows."""
        return len(self._rows)

    def add(self, row: IndexRow) -> None:
        """Add a row that is ready."""
        self._rows[row.age] = row
        heappush(self._heap, row.age)

    def discard(self, row: IndexRow) -> None:
        """Remove a row that was cleared or claimed; no error if the queue doesn't have it."""
        gone = self._rows.pop(row.age, None)
        if gone is not None and len(self._heap) > 2 * len(self._rows) + _SLACK:
            self._heap = sorted(self._rows)

    def take(self, units: int) -> list[IndexRow]:
        """Remove the oldest rows, at most ``units``, and return them, oldest first."""
        taken: list[IndexRow] = []
        rows, heap = self._rows, self._heap
        for _ in range(min(units, len(rows))):
            while (row := rows.pop(heappop(heap), None)) is None:
                pass
            taken.append(row)
        return taken


class GroupQueue:
    """Ready rows, which are claimed in whole groups of ``group_size``.

    A group is as old as its youngest row, which completed it, so the order of groups does not
    depend on how many rows have been scanned.
    """

    def __init__(self, group_size: int) -> None:
        self.scanned = 0
        self._group_size = group_size
        self._members: dict[GroupKey | None, dict[str, IndexRow]] = {}
        self._whole: dict[GroupKey | None, int] = {}  # with their age, that of the youngest row
        self._heap: list[tuple[int, GroupKey | None]] = []

    def __len__(self) -> int:
        """Return the number of whole groups that are ready."""
        return len(self._whole)

    def add(self, row: IndexRow) -> None:
        """Add a row that is ready."""
        members = self._members.setdefault(row.group, {})
        members[row.sample_id] = row
        if len(members) == self._group_size:
            age = max(member.age for member in members.values())
            self._whole[row.group] = age
            heappush(self._heap, (age, row.group))

    def discard(self, row: IndexRow) -> None:
        """Remove a row that was cleared or claimed; no error if the queue doesn't have it."""
        members = self._members.get(row.group)
        if members is None or members.pop(row.sample_id, None) is None:
            return
        if not members:
            del self._members[row.group]
        whole = self._whole.pop(row.group, None) is not None
        if whole and len(self._heap) > 2 * len(self._whole) + _SLACK:
            self._heap = [(age, group) for group, age in self._whole.items()]
            heapify(self._heap)

    def take(self, units: int) -> list[IndexRow]:
        """Remove the oldest whole groups, at most ``units``, and return their rows by age."""
        taken: list[IndexRow] = []
        for _ in range(min(units, len(self._whole))):
            members = self._members.pop(self._oldest())
            taken.extend(sorted(members.values(), key=lambda row: row.age))
        return taken

    def _oldest(self) -> GroupKey | None:
        """Pop the oldest whole group from the heap."""
        while True:
            age, group = heappop(self._heap)
            if self._whole.get(group) == age:
                del self._whole[group]
                return group


ReadyQueue = RowQueue | GroupQueue


class TaskQueues:
    """All queues of a partition, and the log of rows that the queues scan."""

    def __init__(self) -> None:
        # by age; cleared rows stay, without fields, until it is rebuilt
        self._log: list[IndexRow] = []
        self._next_age = 0
        self._queues: dict[tuple[str, Names], ReadyQueue] = {}

    def extend(self, new: list[IndexRow]) -> None:
        """Append new rows to the log; they must be in order, the oldest first."""
        self._log += new
        if new:
            self._next_age = new[-1].age + 1

    def ready(self, task: str, required: Names, group_size: int, units: int) -> ReadyQueue:
        """Return the queue of a task and fields; scan until it has ``units`` rows or groups."""
        queue = self._queues.get((task, required))
        if queue is None:
            queue = RowQueue() if group_size == 1 else GroupQueue(group_size)
            self._queues[task, required] = queue
        if len(queue) < units and queue.scanned < self._next_age:
            at = bisect_left(self._log, queue.scanned, key=_age)
            while len(queue) < units and at < len(self._log):
                _offer(queue, self._log[at], task, required)
                at += 1
            queue.scanned = self._log[at].age if at < len(self._log) else self._next_age
        return queue

    def feed(self, grown: list[tuple[IndexRow, Names]]) -> None:
        """Offer rows that got new fields to the queues that have scanned these rows already."""
        if not grown:
            return
        oldest = min(row.age for row, _ in grown)
        for (task, required), queue in self._queues.items():
            if oldest >= queue.scanned:
                continue
            for row, fresh in grown:
                if row.age < queue.scanned and not required.isdisjoint(fresh):
                    _offer(queue, row, task, required)

    def discard(self, rows: Iterable[IndexRow], of_task: str | None = None) -> None:
        """Remove claimed rows from one task's queues, or cleared rows from all queues."""
        for (task, _), queue in self._queues.items():
            if of_task is None or task == of_task:
                for row in rows:
                    queue.discard(row)

    def tidy(self, living: Mapping[str, IndexRow]) -> None:
        """Drop cleared rows from the log if they outnumber ``living``; reset all if it is empty."""
        if not living:
            self._log, self._queues = [], {}
        elif len(self._log) > 2 * len(living) + _LOG_SLACK:
            self._log = list(living.values())


def _age(row: IndexRow) -> int:
    return row.age


def _offer(queue: ReadyQueue, row: IndexRow, task: str, required: Names) -> None:
    if required <= row.fields and task not in row.claimed_by:
        queue.add(row)
