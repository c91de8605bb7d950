"""``RowTable``: the state of a partition that TransferQueue's controller doesn't keep.

It is used by the controller's only request thread, so each method is atomic for every process of
the plane. TransferQueue keeps the keys, the ready bits and the cursors; the table keeps which puts
are complete, their tags and order, and which rows are being written:

    put     reserve ──▶ (bytes go to the store) ──▶ commit: fields and tags appear together
                                                └─▶ abort:  nothing has appeared
    get     locate ──▶ (frames are read, and must have the located tokens)
    clear   drop: rows vanish ──▶ (their bytes are cleared) ──▶ TransferQueue may reuse the indexes

An index is never released while a put is writing to it: otherwise a put that races a clear of its
row would overwrite the next row with that index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rlconform.backends.transfer_queue.row_state import Conflict, FieldState, RowState, Unready
from rlconform.backends.transfer_queue.write_leases import WriteLeases
from rlconform.contract import Tags

#: ``[index, [field, ...]]``: an index that TransferQueue may reuse, and the fields stored there.
Freed = list[Any]

#: Prefix of the uid in a group's name; the name is empty for rows without a uid.
_UID = "uid:"
_GENERATION = re.compile(r"(?P<uid>.*)_g(?P<index>[0-9]+)", re.DOTALL)


class RowTable:
    """One partition's table. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._leases = WriteLeases(clock)
        self._orphans: dict[int, set[str]] = {}  # index of a deleted row -> its fields
        self._tasks: set[str] = set()
        self._group_size = 1
        self._forget()

    def _forget(self) -> None:
        """Reset to the state of a new partition."""
        self._rows: dict[str, RowState] = {}
        self._by_index: dict[int, RowState] = {}
        self._kinds: dict[str, Counter[str]] = {}
        self._ever_produced = False
        self._next_order = 0
        self._next_ungrouped = 0

    @property
    def occupied(self) -> int:
        """Number of rows that have a field, or that a put is giving one."""
        return len(self._by_index) + self._leases.count_outside(self._by_index)

    def register(self, tasks: Iterable[str], group_size: int) -> None:
        """Declare consumer tasks. Resets an empty partition, adds tasks to one with rows.

        Raises:
            Unready: ``group size``: the partition's rows are grouped by another one.
        """
        if not self._rows:
            self._forget()
            self._tasks = set(tasks)
        elif group_size != self._group_size:
            raise Unready("group size", str(self._group_size))
        self._tasks.update(tasks)
        self._group_size = group_size

    def reserve(
        self,
        token: int,
        sample_ids: list[str],
        indexes: list[int],
        kinds: dict[str, str],
        lease_s: float,
    ) -> bool:
        """Reserve the rows' fields for one put; False while another put has one of them.

        Raises:
            Conflict: Other rows have a field of another kind.
        """
        self._check_kinds(sample_ids, kinds)
        if self._leases.writes(indexes, kinds):
            return False
        self._leases.add(token, sample_ids, indexes, kinds, lease_s)
        return True

    def reserved_indexes(self, token: int) -> list[int]:
        """Indexes that a put has reserved. ``LeaseExpired`` if its lease has run out."""
        return self._leases.get(token).indexes

    def count_new(self, indexes: Iterable[int]) -> int:
        """Number of indexes without a row, and without a put that writes one."""
        return sum(
            index not in self._by_index and not self._leases.holds(index) for index in indexes
        )

    def commit(
        self, token: int, sizes: dict[str, list[int]], tags: Sequence[Tags] | None, owner: str
    ) -> list[Freed]:
        """Publish a put as a whole. Rows that were dropped meanwhile stay deleted.

        Returns:
            Indexes that may be reused now.

        Raises:
            Conflict: As ``reserve``: a concurrent put was committed first.
            LeaseExpired: The put took longer than its lease.
        """
        lease = self._leases.get(token)
        self._check_kinds(lease.sample_ids, lease.kinds)
        self._leases.remove(token)
        for position, index in enumerate(lease.indexes):
            if index in self._orphans:
                self._orphans[index].update(lease.kinds)
                continue
            row = self._row(lease.sample_ids[position], owner)
            row.index = index
            self._by_index[index] = row
            for name, kind in lease.kinds.items():
                self._write(row, name, FieldState(token, sizes[name][position], kind))
            if tags is not None:
                row.tags.update(tags[position])
        return self._freed()

    def abort(
        self, token: int, sample_ids: Sequence[str], indexes: Sequence[int], names: Sequence[str]
    ) -> tuple[list[Freed], list[str]]:
        """Undo a put, reserved or not.

        Returns:
            Indexes that may be reused now, and the ids without a row, whose keys must be removed.
        """
        self._leases.remove(token)
        vacant = []
        for sample_id, index in zip(sample_ids, indexes, strict=True):
            if index in self._by_index or self._leases.holds(index):
                continue
            vacant.append(sample_id)
            self._orphans.setdefault(index, set()).update(names)
        return self._freed(), vacant

    def stamp(self, sample_ids: Sequence[str], tags: Sequence[Tags], owner: str) -> None:
        """Merge tags key by key into rows, which are created if they don't exist."""
        for sample_id, values in zip(sample_ids, tags, strict=True):
            self._row(sample_id, owner).tags.update(values)

    def locate(self, sample_ids: Sequence[str], names: Sequence[str]) -> list[Any]:
        """Locate the rows and their frames.

        Returns:
            The rows' indexes; for each field, the rows' tokens and frame sizes; and whether a put
            is writing to one of the fields.

        Raises:
            Unready: An unknown ``sample``, or a ``field`` that it doesn't have.
        """
        rows = []
        for sample_id in sample_ids:
            if sample_id not in self._rows:
                raise Unready("sample", sample_id)
            rows.append(self._rows[sample_id])
        columns: dict[str, list[list[int]]] = {}
        for name in names:
            if not all(name in row.cells for row in rows):
                raise Unready("field", name)
            cells = [row.cells[name] for row in rows]
            columns[name] = [[cell.token for cell in cells], [cell.size for cell in cells]]
        indexes = [row.index for row in rows]
        return [indexes, columns, self._leases.writes(indexes, names)]

    def select(
        self, task: str, ready: Iterable[int], names: Sequence[str], batch_size: int, exact: bool
    ) -> list[RowState]:
        """Select the oldest ready rows, at most ``batch_size``; none if ``exact`` and fewer exist.

        In a partition with groups it selects whole groups.

        Raises:
            Unready: A ``task`` that isn't registered; a ``batch size`` that is exact and no
                multiple of the group size.
        """
        self._check_task(task)
        if exact and batch_size % self._group_size:
            raise Unready("batch size", str(self._group_size))
        rows = [
            row
            for index in ready
            if (row := self._by_index.get(index)) and all(name in row.cells for name in names)
        ]
        rows.sort(key=lambda row: row.order)
        chosen = self._whole_groups(rows, batch_size) if self._group_size > 1 else rows[:batch_size]
        return [] if exact and len(chosen) < batch_size else chosen

    def produced(self, task: str) -> list[int]:
        """Indexes of the rows that have a field. ``Unready`` if the task isn't registered."""
        self._check_task(task)
        return list(self._by_index)

    @property
    def ever_produced(self) -> bool:
        """Whether a field was ever put since the partition was last registered empty."""
        return self._ever_produced

    @property
    def sample_ids(self) -> list[str]:
        """The ids of the rows, oldest first."""
        return list(self._rows)

    @property
    def tasks(self) -> list[str]:
        """The registered tasks."""
        return sorted(self._tasks)

    def indexes_of(self, sample_ids: Iterable[str]) -> list[int]:
        """TransferQueue's indexes of rows that have a field."""
        return [self._rows[sample_id].index for sample_id in sample_ids]

    def snapshot(self, claimed: Callable[[str, int], bool]) -> dict[str, Any] | None:
        """A ``SavedPartition`` as plain data; None if the partition has no state.

        ``claimed(task, index)`` returns whether the task claimed that row.
        """
        if not (self._rows or self._tasks or self._ever_produced):
            return None
        rows = [
            [
                row.sample_id,
                sorted(row.cells),
                row.tags,
                [task for task in self.tasks if claimed(task, row.index)],
                (row.group[0].removeprefix(_UID) if row.group[0] else None, row.group[1]),
            ]
            for row in self._rows.values()
        ]
        return {
            "tasks": self.tasks,
            "group_size": self._group_size,
            "ever_produced": self._ever_produced,
            "next_ungrouped": self._next_ungrouped,
            "rows": rows,
        }

    def restore(
        self,
        ever_produced: bool,
        next_ungrouped: int,
        groups: dict[str, tuple[str | None, int] | None],
    ) -> None:
        """Restore the groups of rows that were put again."""
        for sample_id, group in groups.items():
            if group is not None:
                uid, number = group
                self._rows[sample_id].group = ("" if uid is None else _UID + uid, number)
        self._ever_produced, self._next_ungrouped = ever_produced, next_ungrouped

    def drop(self, sample_ids: Sequence[str] | None, owner: str) -> tuple[list[Freed], list[str]]:
        """Delete rows; ``None`` deletes all of ``owner``, unknown ids are ignored.

        Returns:
            Indexes that may be reused now, and the ids whose keys must be removed.
        """
        if sample_ids is None:
            sample_ids = [row.sample_id for row in self._rows.values() if row.owner == owner]
        gone = []
        for sample_id in sample_ids:
            row = self._rows.pop(sample_id, None)
            if row is None or row.index < 0:
                continue
            gone.append(sample_id)
            del self._by_index[row.index]
            self._orphans[row.index] = set(row.cells)
            for name, cell in row.cells.items():
                self._uncount(name, cell.kind)
        return self._freed(), gone

    def _freed(self) -> list[Freed]:
        """Remove and return the orphaned indexes that no put is writing to."""
        idle = [index for index in self._orphans if not self._leases.holds(index)]
        return [[index, sorted(self._orphans.pop(index))] for index in idle]

    def _row(self, sample_id: str, owner: str) -> RowState:
        row = self._rows.get(sample_id)
        if row is None:
            group = self._group_of(sample_id)
            row = self._rows[sample_id] = RowState(sample_id, -1, owner, self._next_order, group)
            self._next_order += 1
        return row

    def _group_of(self, sample_id: str) -> tuple[str, int]:
        """The group of G generations ``<uid>_g<i>``, or of G new rows without uids."""
        match = _GENERATION.fullmatch(sample_id) if self._group_size > 1 else None
        if match is not None:
            return _UID + match["uid"], int(match["index"]) // self._group_size
        self._next_ungrouped += 1
        return "", (self._next_ungrouped - 1) // self._group_size

    def _whole_groups(self, rows: Sequence[RowState], batch_size: int) -> list[RowState]:
        groups: dict[tuple[str, int], list[RowState]] = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        whole = [members for members in groups.values() if len(members) == self._group_size]
        return [row for members in whole[: batch_size // self._group_size] for row in members]

    def _write(self, row: RowState, name: str, cell: FieldState) -> None:
        if name in row.cells:
            self._uncount(name, row.cells[name].kind)
        row.cells[name] = cell
        self._kinds.setdefault(name, Counter())[cell.kind] += 1
        self._ever_produced = True

    def _uncount(self, name: str, kind: str) -> None:
        self._kinds[name] -= Counter([kind])

    def _check_kinds(self, sample_ids: Iterable[str], kinds: dict[str, str]) -> None:
        rows = [self._rows[name] for name in sample_ids if name in self._rows]
        for name, kind in kinds.items():
            held = self._kinds.get(name, Counter())
            if set(held) <= {kind}:
                continue
            replaced = Counter(row.cells[name].kind for row in rows if name in row.cells)
            others = sorted(set(held - replaced) - {kind})
            if others:
                raise Conflict(f"field {name!r} holds {', '.join(others)} in other rows")

    def _check_task(self, task: str) -> None:
        if task not in self._tasks:
            raise Unready("task", task)
