"""Queues of the rows that one task may claim for one set of fields, oldest first.

Rows are added when they are found to be ready and removed when they are claimed or cleared. The
heap entry of a cleared row stays until it reaches the top, or until such entries outnumber the
others, so the cost of taking n rows does not depend on what was claimed or cleared before.

    RowQueue     single rows
    GroupQueue   whole groups only: rows wait until their group is complete
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Protocol

from rlconform.backends.index.row import GroupKey, IndexRow

#: Stale entries that a heap may have before it is rebuilt.
_SLACK = 64


class ReadyQueue(Protocol):
    """Ready rows; its ``len()`` is the number of units, rows or groups, that can be taken.

    Attributes:
        scanned: The age below which all rows of the partition have been scanned.
    """

    scanned: int

    def __len__(self) -> int: ...

    def add(self, row: IndexRow) -> None:
        """Take in a row that is ready."""

    def discard(self, row: IndexRow) -> None:
        """Forget a row that was cleared; no error if it isn't here."""

    def take(self, units: int) -> list[IndexRow]:
        """Remove the oldest units, at most ``units``, and return their rows by age."""


class RowQueue:
    """Rows that are claimed one by one."""

    def __init__(self) -> None:
        self.scanned = 0
        self._rows: dict[int, IndexRow] = {}  # by age
        self._heap: list[int] = []

    def __len__(self) -> int:
        """How many rows are ready."""
        return len(self._rows)

    def add(self, row: IndexRow) -> None:
        """Take in a row that is ready."""
        self._rows[row.age] = row
        heappush(self._heap, row.age)

    def discard(self, row: IndexRow) -> None:
        """Forget a row that was cleared; no error if it isn't here."""
        gone = self._rows.pop(row.age, None)
        if gone is not None and len(self._heap) > 2 * len(self._rows) + _SLACK:
            self._heap = sorted(self._rows)

    def take(self, units: int) -> list[IndexRow]:
        """Remove the oldest rows, at most ``units``, and return them by age."""
        taken: list[IndexRow] = []
        rows, heap = self._rows, self._heap
        for _ in range(min(units, len(rows))):
            while (row := rows.pop(heappop(heap), None)) is None:
                pass
            taken.append(row)
        return taken


class GroupQueue:
    """Rows that are claimed in whole groups of ``group_size``.

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
        """How many whole groups are ready."""
        return len(self._whole)

    def add(self, row: IndexRow) -> None:
        """Take in a row that is ready."""
        members = self._members.setdefault(row.group, {})
        members[row.sample_id] = row
        if len(members) == self._group_size:
            age = max(member.age for member in members.values())
            self._whole[row.group] = age
            heappush(self._heap, (age, row.group))

    def discard(self, row: IndexRow) -> None:
        """Forget a row that was cleared; no error if it isn't here."""
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
