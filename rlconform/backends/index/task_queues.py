"""``TaskQueues``: the ready rows of one partition, by the task that may claim them and its fields.

    new rows ──▶ log, by age ──(a claim looks at rows that its queue has not seen)──▶ queue
    rows that its queue has seen ──(the last required field arrives)──────────────────▶

A queue looks at each row once, when a claim needs more than it holds; from then on puts and clears
keep it up. So a put of new rows costs no queue anything, and a claim costs what it hands out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping

from rlconform.backends.index.block import Names
from rlconform.backends.index.ready_queue import GroupQueue, ReadyQueue, RowQueue
from rlconform.backends.index.row import IndexRow

#: Cleared rows that the log may hold before it is worth rebuilding.
_SLACK = 256


class TaskQueues:
    """All queues of a partition, and the log of its rows that they look through."""

    def __init__(self) -> None:
        self._log: list[
            IndexRow
        ] = []  # by age; cleared rows stay, without fields, until it is rebuilt
        self._next_age = 0
        self._queues: dict[tuple[str, Names], ReadyQueue] = {}

    def extend(self, new: list[IndexRow]) -> None:
        """Rows have come to be, each older than the next."""
        self._log += new
        if new:
            self._next_age = new[-1].age + 1

    def of(self, task: str, required: Names, group_size: int) -> ReadyQueue:
        """The task's queue for these fields; a new one if it has none."""
        queue = self._queues.get((task, required))
        if queue is None:
            queue = RowQueue() if group_size == 1 else GroupQueue(group_size)
            self._queues[task, required] = queue
        return queue

    def scanned(self, queue: ReadyQueue, task: str, required: Names, units: int) -> ReadyQueue:
        """The queue, after it looked at rows until it held ``units`` or there were no more."""
        if len(queue) < units and queue.scanned < self._next_age:
            at = bisect_left(self._log, queue.scanned, key=_age)
            while len(queue) < units and at < len(self._log):
                _offer(queue, self._log[at], task, required)
                at += 1
            queue.scanned = self._log[at].age if at < len(self._log) else self._next_age
        return queue

    def feed(self, grown: list[tuple[IndexRow, Names]]) -> None:
        """Rows have got these fields: queues that have seen them look again."""
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
        """The rows were cleared, or claimed by the task: its queues forget them, or all do."""
        for (task, _), queue in self._queues.items():
            if of_task is None or task == of_task:
                for row in rows:
                    queue.discard(row)

    def tidy(self, living: Mapping[str, IndexRow]) -> None:
        """Forget cleared rows when they outnumber the living, and everything if none live."""
        if not living:
            self._log, self._queues = [], {}
        elif len(self._log) > 2 * len(living) + _SLACK:
            self._log = list(living.values())


def _age(row: IndexRow) -> int:
    return row.age


def _offer(queue: ReadyQueue, row: IndexRow, task: str, required: Names) -> None:
    if required <= row.fields and task not in row.claimed_by:
        queue.add(row)
