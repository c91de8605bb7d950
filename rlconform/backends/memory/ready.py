"""``ReadyQueue``: the rows that one task may claim for one set of fields, oldest first.

Rows come in when their last required field is produced and leave when they are claimed or cleared.
They leave in whole groups; in a partition without groups every row is a group of one.

    add(row) ──▶ gathered by group ──(size reached)──▶ whole, on a heap by age ──▶ take(n)

A whole group that loses a row is whole no longer. Its entry stays behind on the heap, dead, and
goes when it surfaces or when dead entries outnumber living ones: so ``take(n)`` costs what n groups
cost, however many rows were claimed or cleared before.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from rlconform.backends.memory.rows import GroupKey, Row

#: Dead entries that a heap may hold before it is worth rebuilding.
_SLACK = 64


class ReadyQueue:
    """Ready rows in groups of ``group_size``.

    >>> queue = ReadyQueue(group_size=1)
    >>> queue.add(row)
    >>> queue.take(1)
    [row]
    """

    def __init__(self, group_size: int) -> None:
        self._group_size = group_size
        self._members: dict[GroupKey, dict[str, Row]] = {}
        self._whole: dict[GroupKey, int] = {}  # whole groups and their age, that of the oldest row
        self._heap: list[tuple[int, GroupKey]] = []

    def __len__(self) -> int:
        """How many whole groups are ready."""
        return len(self._whole)

    def add(self, row: Row) -> None:
        """Take in a row that has become ready."""
        members = self._members.setdefault(row.group, {})
        members[row.sample_id] = row
        if len(members) == self._group_size:
            age = min(member.age for member in members.values())
            self._whole[row.group] = age
            heappush(self._heap, (age, row.group))

    def discard(self, row: Row) -> None:
        """Forget a row that was cleared; no error if it isn't here."""
        members = self._members.get(row.group)
        if members is None or members.pop(row.sample_id, None) is None:
            return
        if not members:
            del self._members[row.group]
        if self._whole.pop(row.group, None) is not None:
            self._compact()

    def take(self, groups: int) -> list[Row]:
        """Remove the oldest whole groups, at most ``groups``, and return their rows by age."""
        taken: list[Row] = []
        for _ in range(min(groups, len(self._whole))):
            members = self._members.pop(self._oldest())
            taken.extend(sorted(members.values(), key=lambda row: row.age))
        return taken

    def _oldest(self) -> GroupKey:
        """Remove the oldest whole group from the heap and name it."""
        while True:
            age, group = heappop(self._heap)
            if self._whole.get(group) == age:
                del self._whole[group]
                return group

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._whole) + _SLACK:
            self._heap = [(age, group) for group, age in self._whole.items()]
            heapify(self._heap)
