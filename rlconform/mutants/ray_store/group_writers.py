"""Planes that are right for groups of one process, and wrong where several put their rows."""

from __future__ import annotations

from binascii import crc_hqx
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.index import IndexRow
from rlconform.backends.index.row import GroupKey, generation_of
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import give_back, mark, rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant

#: The ready rows of each group.
Groups = Mapping[GroupKey, Sequence[IndexRow]]


@controller_mutant("CLAIM-15", evidence="the status with two", chance=False, may_fail="STAT-01")
class StatusLeavesOutGroupsOfSeveral(Controller):
    """Counts the rows of an incomplete group in the status only if one process has put them."""

    async def all_claimed(self, partition_id: str, tasks: list[str]) -> Any:
        answer = await super().all_claimed(partition_id, tasks)
        rows = [row for row in rows_in(self._index, partition_id, None) if row.fields]
        if isinstance(answer, Refusal) or answer or not rows:
            return answer
        partition, groups = self._index.partition(partition_id), defaultdict(list)
        for row in rows:
            groups[row.group].append(row)
        counted = [
            row
            for members in groups.values()
            for row in members
            if len(members) >= partition._group_size or len({one.writer for one in members}) == 1
        ]
        return bool(counted) and all({*tasks} <= row.claimed_by for row in counted)


@controller_mutant("CLAIM-15", evidence="tags of a group", chance=False, may_fail="TAG-01 TAG-06")
class GroupTagsByWriter(Controller):
    """Gathers a group process by process, and sorts its ids by age but not its tags."""

    async def claim(self, partition_id: str, *claim: Any) -> Any:
        answer = await super().claim(partition_id, *claim)
        if answer is None or isinstance(answer, Refusal):
            return answer
        ids, tags = answer
        size, gathered = self._index.partition(partition_id)._group_size, []
        rows = rows_in(self._index, partition_id, ids)
        for start in range(0, len(ids), size):
            writers = [row.writer for row in rows[start : start + size]]
            order = sorted(range(len(writers)), key=lambda n: writers.index(writers[n]))
            gathered += [tags[start + n] for n in order]
        return ids, gathered


class _ClaimsFurtherGroups(Controller):
    """A controller whose claims that don't wait also return the rows that ``further`` names."""

    def further(
        self, _partition_id: str, _groups: Groups, _size: int
    ) -> Iterable[Sequence[IndexRow]]:
        """Return what is claimed beside whole groups, of the ready rows of each group."""
        return ()

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        answer = await super().claim(partition_id, task, names, rows, wait_s)
        if wait_s is not None or isinstance(answer, Refusal):
            return answer
        ids, tags = answer
        partition, groups = self._index.partition(partition_id), defaultdict(list)
        for row in partition._rows.values():
            ready = task not in row.claimed_by and frozenset(names) <= row.fields
            if row.group is not None and row.group[0] is not None and ready:
                groups[row.group].append(row)
        for members in self.further(partition_id, groups, partition._group_size):
            if len(ids) + len(members) <= rows:
                mark(partition, members, task)
                ids += [row.sample_id for row in members]
                tags += [row.tags for row in members]
        return ids, tags


@controller_mutant("CLAIM-15", evidence="the rest is in another", chance=False, may_fail="REG-04")
class GroupCompletedByOtherPartition(_ClaimsFurtherGroups):
    """Knows members that another process has put by uid and number, without the partition."""

    def further(self, partition_id: str, groups: Groups, size: int) -> Iterable[Sequence[IndexRow]]:
        for group, members in groups.items():
            writers = {row.writer for row in members}
            elsewhere = {
                _number(row)
                for name, other in self._index._partitions.items()
                for row in other._rows.values()
                if name != partition_id and row.group == group and row.writer not in writers
            }
            found = len(elsewhere - {_number(row) for row in members})
            if 0 < size - len(members) <= found:
                yield members


@controller_mutant("CLAIM-15", evidence="only half is there", chance=False, may_fail="CLAIM-04")
class HalvesOfGroupsJoinedByCrc16(_ClaimsFurtherGroups):
    """Takes two halves of groups for a whole one if their names have the same CRC-16."""

    def further(
        self, _partition_id: str, groups: Groups, size: int
    ) -> Iterable[Sequence[IndexRow]]:
        buckets = defaultdict[int, list[IndexRow]](list)
        for (uid, _), members in groups.items():
            buckets[crc_hqx((uid or "").encode("utf-8", "surrogatepass"), 0)] += members
        for rows in buckets.values():
            if len(rows) == size and len({row.writer for row in rows}) > 1:
                yield rows


#: Rows of a group that is counted by arrivals.
LARGE = 8


@controller_mutant("CLAIM-15", evidence="that lacks one", chance=False, may_fail="CLAIM-04")
class MembersCountedByArrival(_ClaimsFurtherGroups):
    """Counts a row of a large group once for each process that has delivered it."""

    _delivered_by = State(dict[tuple[str, str], set[str]])  # by row

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        for sample_id in put.sample_ids if columns else ():
            self._delivered_by.setdefault((put.partition_id, sample_id), set()).add(put.writer)
        return due

    def further(self, partition_id: str, groups: Groups, size: int) -> Iterable[Sequence[IndexRow]]:
        for members in groups.values() if size >= LARGE else ():
            by = [self._delivered_by[partition_id, row.sample_id] for row in members]
            if len(members) < size <= sum(map(len, by)):
                yield members


def _number(row: IndexRow) -> int:
    found = generation_of(row.sample_id)
    return -1 if found is None else found[1]


@controller_mutant("CLAIM-15", evidence="claimed again with its group", chance=False)
class ReplacedMemberReopensGroup(Controller):
    """Takes a cleared row of a claimed group for the last one of a new group.

    It does so if another process than that of the other rows puts the row again, as a worker does
    that tries a failed generation once more.
    """

    async def commit(self, put: StoredPut, columns: Any, reference: list[Any]) -> Any:
        known = {row.sample_id for row in rows_in(self._index, put.partition_id, put.sample_ids)}
        due = await super().commit(put, columns, reference)
        partition = self._index.partition(put.partition_id)
        if isinstance(due, Refusal) or not columns or partition._group_size < 2:
            return due
        new = [i for i in put.sample_ids if i not in known]
        for row in rows_in(self._index, put.partition_id, new):
            others = [
                one
                for one in partition._rows.values()
                if one.group == row.group and one is not row and one.writer != put.writer
            ]
            if len(others) == partition._group_size - 1:
                for task in frozenset.intersection(*(one.claimed_by for one in others)):
                    give_back(partition, others, task)
                self._wake(put.partition_id)
        return due
