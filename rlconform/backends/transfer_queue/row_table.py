"""``RowTable``: the state of a partition that TransferQueue's controller doesn't keep.

The controller's only request thread uses it, so each method is atomic for every process of the
plane. TransferQueue keeps the keys, the ready bits and the cursors; the table records which puts
are complete, their tags and order, and which rows are being written:

    put     reserve ──▶ (bytes go to the store) ──▶ commit: fields and tags appear together
                                                └─▶ abort:  nothing has appeared
    get     locate ──▶ (frames are read, and must have the located tokens)
    clear   drop: rows vanish ──▶ (their bytes are cleared) ──▶ TransferQueue may reuse the indexes

An index is never released while a put is writing to it: otherwise a put that races a clear of its
row would overwrite the next row with that index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rlconform.backends.index.block import Names
from rlconform.backends.index.row import GroupKey, group_of
from rlconform.backends.index.schema import Schema
from rlconform.backends.transfer_queue.write_leases import WriteLeases
from rlconform.contract import Tags, UnknownField, UnknownSample, UnknownTask

#: ``[index, [field, ...]]``: an index that TransferQueue may reuse, and the fields stored there.
#: A put or a clear returns those that no put is writing to any more.
Freed = list[Any]


class StoredField(NamedTuple):
    """One produced value: the token of its put, and the size of its frame in bytes."""

    token: int
    size: int


@dataclass(slots=True)
class RowState:
    """The record of one sample."""

    sample_id: str
    owner: str
    order: int
    index: int = -1  # TransferQueue's; -1 for a row with tags only
    group: GroupKey | None = None  # None in a partition without groups
    fields: dict[str, StoredField] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)


class RowTable:
    """The table of one partition. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.tasks: set[str] = set()
        self._leases = WriteLeases(clock)
        self._orphans: dict[int, set[str]] = {}  # index of a deleted row -> its fields
        self._group_size = 1
        self._forget()

    def _forget(self) -> None:
        """Reset to the state of a new partition."""
        self.ever_produced = False  # since the partition was last registered empty
        self._rows: dict[str, RowState] = {}
        self._by_index: dict[int, RowState] = {}
        self._schema = Schema()
        self._next_order = 0
        self._next_ungrouped = 0

    @property
    def occupied(self) -> int:
        """Number of rows that have a field, or that are getting their first field."""
        return len(self._by_index) + self._leases.count_outside(self._by_index)

    @property
    def indexes(self) -> list[int]:
        """TransferQueue's indexes of the rows that have a field."""
        return list(self._by_index)

    def sample_ids(self) -> list[str]:
        """Return the ids of the rows, oldest first."""
        return list(self._rows)

    def indexes_of(self, sample_ids: Iterable[str]) -> list[int]:
        """Return TransferQueue's indexes of these rows."""
        return [self._rows[sample_id].index for sample_id in sample_ids]

    def register(self, tasks: Iterable[str], group_size: int) -> None:
        """Declare consumer tasks; reset a partition without rows, add tasks to one with rows.

        ``ValueError`` if the rows have another group size.
        """
        if not self._rows:
            self._forget()
            self.tasks.clear()
        elif group_size != self._group_size:
            raise ValueError(
                f"grpo_group_size can't change from {self._group_size} to {group_size} while the "
                f"partition holds {len(self._rows)} rows"
            )
        self.tasks.update(tasks)
        self._group_size = group_size

    def reserve(
        self,
        token: int,
        sample_ids: list[str],
        indexes: list[int],
        kinds: dict[str, str],
        lease_s: float,
    ) -> bool:
        """Reserve the rows' fields for one put; return False while another put writes one of them.

        ``ValueError`` if rows outside the put have one of the fields with another dtype.
        """
        self._schema.check(self._rows, sample_ids, kinds)
        if self._leases.writes(indexes, kinds):
            return False
        self._leases.add(token, sample_ids, indexes, kinds, lease_s)
        return True

    def reserved_indexes(self, token: int) -> list[int]:
        """Return the indexes that a put reserved. ``PlaneUnavailable`` if its lease has expired."""
        return self._leases.get(token).indexes

    def count_new(self, indexes: Iterable[int]) -> int:
        """Return how many of the indexes have no row, and no put that is writing one."""
        return sum(
            index not in self._by_index and not self._leases.holds(index) for index in indexes
        )

    def commit(
        self, token: int, sizes: dict[str, list[int]], tags: Sequence[Tags] | None, owner: str
    ) -> list[Freed]:
        """Publish the rows of a put together, except rows that were dropped meanwhile.

        ``ValueError`` if a concurrent put has changed a field's dtype, see ``reserve``;
        ``PlaneUnavailable`` if the put took longer than its lease. Returns the freed indexes.
        """
        lease = self._leases.get(token)
        live = [n for n, index in enumerate(lease.indexes) if index not in self._orphans]
        if live:
            self._schema.check(self._rows, [lease.sample_ids[n] for n in live], lease.kinds)
            self.ever_produced = True
        self._leases.remove(token)
        for index in self._orphans.keys() & lease.indexes:
            self._orphans[index].update(lease.kinds)
        grown = Counter[Names]()
        for n in live:
            row = self._row(lease.sample_ids[n], owner)
            row.index = lease.indexes[n]
            self._by_index[row.index] = row
            grown[frozenset(lease.kinds).difference(row.fields)] += 1
            row.fields.update({name: StoredField(token, sizes[name][n]) for name in lease.kinds})
            if tags is not None:
                row.tags.update(tags[n])
        if live:
            self._schema.add(lease.kinds, 0, grown)
        return self._freed()

    def abort(
        self, token: int, sample_ids: Sequence[str], indexes: Sequence[int], names: Sequence[str]
    ) -> tuple[list[Freed], list[str]]:
        """Undo a put, reserved or not; return freed indexes, and ids whose keys must be removed."""
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
        """Locate the rows and their frames, or raise ``UnknownSample`` or ``UnknownField``.

        Returns the rows' indexes; for each field, the rows' tokens and frame sizes; and whether a
        put is writing to one of the fields.
        """
        rows = []
        for sample_id in sample_ids:
            if sample_id not in self._rows:
                raise UnknownSample(f"no sample {sample_id!r}: never put, or cleared")
            rows.append(self._rows[sample_id])
        columns: dict[str, list[list[int]]] = {}
        for name in names:
            if not all(name in row.fields for row in rows):
                raise UnknownField(f"field {name!r} is not produced for every requested sample")
            stored = [row.fields[name] for row in rows]
            columns[name] = [[one.token for one in stored], [one.size for one in stored]]
        indexes = [row.index for row in rows]
        return [indexes, columns, self._leases.writes(indexes, names)]

    def select(
        self, task: str, ready: Iterable[int], names: Sequence[str], batch_size: int, exact: bool
    ) -> list[RowState]:
        """Select the oldest ready rows, up to ``batch_size``; if ``exact``, that many rows or none.

        In a partition with groups it selects whole groups. ``UnknownTask`` if the task isn't
        registered, ``ValueError`` if ``exact`` and ``batch_size`` is no multiple of the group size.
        """
        if task not in self.tasks:
            raise UnknownTask(f"task {task!r} is not registered: one of {sorted(self.tasks)}")
        if exact and batch_size % self._group_size:
            raise ValueError(
                f"a blocking claim waits for batch_size={batch_size} rows, which is no multiple of "
                f"grpo_group_size={self._group_size}"
            )
        rows = [
            row
            for index in ready
            if (row := self._by_index.get(index)) and all(name in row.fields for name in names)
        ]
        rows.sort(key=lambda row: row.order)
        chosen = self._whole_groups(rows, batch_size) if self._group_size > 1 else rows[:batch_size]
        return [] if exact and len(chosen) < batch_size else chosen

    def snapshot(self, claimed: Callable[[str, int], bool]) -> dict[str, Any] | None:
        """Return a ``SavedPartition`` as plain data; None if the partition has no state.

        ``claimed(task, index)`` returns whether the task claimed that row.
        """
        if not (self._rows or self.tasks or self.ever_produced):
            return None
        tasks = sorted(self.tasks)
        rows = [
            [
                row.sample_id,
                sorted(row.fields),
                row.tags,
                [task for task in tasks if claimed(task, row.index)],
                row.group,
            ]
            for row in self._rows.values()
        ]
        return {
            "tasks": tasks,
            "group_size": self._group_size,
            "ever_produced": self.ever_produced,
            "next_ungrouped": self._next_ungrouped,
            "rows": rows,
        }

    def restore(
        self, ever_produced: bool, next_ungrouped: int, groups: dict[str, GroupKey | None]
    ) -> None:
        """Restore the groups of rows that were put again."""
        for sample_id, group in groups.items():
            self._rows[sample_id].group = group
        self.ever_produced, self._next_ungrouped = ever_produced, next_ungrouped

    def drop(self, sample_ids: Sequence[str] | None, owner: str) -> tuple[list[Freed], list[str]]:
        """Delete rows; return freed indexes, and the ids whose keys must be removed.

        ``None`` deletes all rows of ``owner``; unknown ids are ignored.
        """
        if sample_ids is None:
            sample_ids = [row.sample_id for row in self._rows.values() if row.owner == owner]
        gone = []
        held = Counter[Names]()
        for sample_id in sample_ids:
            row = self._rows.pop(sample_id, None)
            if row is None or row.index < 0:
                continue
            gone.append(sample_id)
            del self._by_index[row.index]
            self._orphans[row.index] = set(row.fields)
            held[frozenset(row.fields)] += 1
        self._schema.drop(held)
        return self._freed(), gone

    def _freed(self) -> list[Freed]:
        """Remove and return the indexes of deleted rows that no put is writing to."""
        idle = [index for index in self._orphans if not self._leases.holds(index)]
        return [[index, sorted(self._orphans.pop(index))] for index in idle]

    def _row(self, sample_id: str, owner: str) -> RowState:
        row = self._rows.get(sample_id)
        if row is None:
            row = self._rows[sample_id] = RowState(sample_id, owner, self._next_order)
            self._next_order += 1
            if self._group_size > 1:
                row.group = group_of(sample_id, self._group_size, self._next_ungrouped)
                self._next_ungrouped += row.group[0] is None
        return row

    def _whole_groups(self, rows: Sequence[RowState], batch_size: int) -> list[RowState]:
        groups: dict[GroupKey | None, list[RowState]] = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        whole = [members for members in groups.values() if len(members) == self._group_size]
        return [row for members in whole[: batch_size // self._group_size] for row in members]
