"""``TaskQueues``: the ready rows of one partition, by task and required fields.

    new rows ──▶ log, by age ──(a claim scans rows that its queue has not seen)──▶ queue
    rows that the queue has scanned ──(the last required field is put)───────────▶ queue

A queue scans each row once, when a claim needs more rows than it has; after that puts and clears
update it. So a put of new rows updates no queue, and a claim costs in proportion to its rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from rlconform.backends.index.block import Names
from rlconform.backends.index.ready_queue import GroupQueue, ReadyQueue, RowQueue
from rlconform.backends.index.row import IndexRow

#: Cleared rows that the log may have before it is rebuilt.
_SLACK = 256


class TaskQueues:
    """All queues of a partition, and the log of its rows that they scan."""

    def __init__(self) -> None:
        # by age; cleared rows stay, without fields, until it is rebuilt
        self._log: list[IndexRow] = []
        self._next_age = 0
        self._queues: dict[tuple[str, Names], ReadyQueue] = {}

    def extend(self, new: list[IndexRow]) -> None:
        """Add new rows, each older than the next."""
        self._log += new
        if new:
            self._next_age = new[-1].age + 1

    def of(self, task: str, required: Names, group_size: int) -> ReadyQueue:
        """The task's queue for these fields; created if there is none."""
        queue = self._queues.get((task, required))
        if queue is None:
            queue = RowQueue() if group_size == 1 else GroupQueue(group_size)
            self._queues[task, required] = queue
        return queue

    def scanned(self, queue: ReadyQueue, task: str, required: Names, units: int) -> ReadyQueue:
        """Scan rows until the queue has ``units`` or no row is left; returns the queue."""
        if len(queue) < units and queue.scanned < self._next_age:
            at = bisect_left(self._log, queue.scanned, key=_age)
            while len(queue) < units and at < len(self._log):
                _offer(queue, self._log[at], task, required)
                at += 1
            queue.scanned = self._log[at].age if at < len(self._log) else self._next_age
        return queue

    def feed(self, grown: list[tuple[IndexRow, Names]]) -> None:
        """Offer rows that got these fields to the queues that have scanned them."""
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
        """Remove rows from the task's queues after a claim, or from all after a clear."""
        for (task, _), queue in self._queues.items():
            if of_task is None or task == of_task:
                for row in rows:
                    queue.discard(row)

    def tidy(self, living: Mapping[str, IndexRow]) -> None:
        """Drop cleared rows from the log if they outnumber the living; reset it if none live."""
        if not living:
            self._log, self._queues = [], {}
        elif len(self._log) > 2 * len(living) + _SLACK:
            self._log = list(living.values())


def _age(row: IndexRow) -> int:
    return row.age


def _offer(queue: ReadyQueue, row: IndexRow, task: str, required: Names) -> None:
    if required <= row.fields and task not in row.claimed_by:
        queue.add(row)
