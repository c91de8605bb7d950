"""``Ledger``: what a partition's controller must know beyond what TransferQueue keeps.

It lives in the controller, on the one thread that serves all requests, so each method is atomic for
every process of the plane. TransferQueue keeps the keys, the ready bits and the cursors; a ledger
keeps which puts are whole, their tags and order, and which rows a writer is still busy with:

    put     pin ──▶ (bytes go to the store) ──▶ commit: fields and tags appear together
                                            └─▶ abort:  nothing ever appeared
    get     locate ──▶ (bytes come from the store, and must carry the tokens that were located)
    clear   drop: rows vanish at once ──▶ (bytes go) ──▶ TransferQueue may use their indexes again

A row's index is never given back while a put is writing to it: without that rule a put that races
a clear of its own row writes over the row that took its index.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Tags = dict[str, Any]
#: An index that TransferQueue may have back, and the fields that the store may hold for it.
Freed = list[Any]  # [index, [field, ...]]

_GENERATION = re.compile(r"(?P<uid>.*)_g(?P<index>[0-9]+)", re.DOTALL)


@dataclass(slots=True)
class Cell:
    """One produced value: the token of the put that wrote it, its frame's bytes, its kind."""

    token: int
    size: int
    kind: str


@dataclass(slots=True)
class Row:
    """One sample. ``index`` is TransferQueue's, -1 for a row that carries tags only."""

    sample_id: str
    index: int
    owner: str
    order: int
    group: tuple[str, int]
    cells: dict[str, Cell] = field(default_factory=dict)
    tags: Tags = field(default_factory=dict)


@dataclass(slots=True)
class Pin:
    """A put that is writing: its rows, its fields and their kinds, and until when it is trusted."""

    sample_ids: list[str]
    indexes: list[int]
    kinds: dict[str, str]
    expires: float


class Conflict(Exception):
    """A put that would leave a field with rows of two kinds."""


class Revoked(Exception):
    """A put that took so long that another writer was let in."""


class Unready(Exception):
    """A locate or a claim that can't be served: ``(kind, detail)`` in its arguments."""


class Ledger:
    """One partition's ledger. ``clock`` gives monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pins: dict[int, Pin] = {}
        self._writers: dict[int, set[int]] = {}  # index -> tokens of the puts that write to it
        self._orphans: dict[int, set[str]] = {}  # index of a dropped row -> its fields
        self._tasks: set[str] = set()
        self._group_size = 1
        self._forget()

    def _forget(self) -> None:
        self._rows: dict[str, Row] = {}
        self._by_index: dict[int, Row] = {}
        self._kinds: dict[str, Counter[str]] = {}
        self._ever_produced = False
        self._next_order = 0
        self._next_ungrouped = 0

    def register(self, tasks: Iterable[str], group_size: int) -> None:
        """Declare consumer tasks. An empty partition starts anew, one with rows is extended.

        Raises:
            Unready: ``("group size", ...)``, the partition's rows are grouped by another one.
        """
        if not self._rows:
            self._forget()
            self._tasks = set(tasks)
        elif group_size != self._group_size:
            raise Unready("group size", str(self._group_size))
        self._tasks.update(tasks)
        self._group_size = group_size

    # Writing

    def pin(
        self,
        token: int,
        sample_ids: Sequence[str],
        indexes: Sequence[int],
        kinds: dict[str, str],
        lease_s: float,
    ) -> bool:
        """Reserve the rows' fields for one put; False while another put holds one of them.

        Raises:
            Conflict: Other rows hold a field in another kind.
        """
        self._check_kinds(sample_ids, kinds)
        now = self._clock()
        for index in indexes:
            for other in list(self._writers.get(index, ())):
                pin = self._pins[other]
                if pin.expires > now and not pin.kinds.keys().isdisjoint(kinds):
                    return False
                if pin.expires <= now:  # its process is dead or stuck
                    self._unpin(other)
        self._pins[token] = Pin(list(sample_ids), list(indexes), dict(kinds), now + lease_s)
        for index in indexes:
            self._writers.setdefault(index, set()).add(token)
        return True

    def pinned(self, token: int) -> list[int]:
        """Indexes that a put holds. ``Revoked`` if it was given up for dead."""
        if token not in self._pins:
            raise Revoked
        return self._pins[token].indexes

    def commit(
        self, token: int, sizes: dict[str, list[int]], tags: Sequence[Tags] | None, owner: str
    ) -> list[Freed]:
        """Publish a put as a whole. Rows that were dropped meanwhile stay dropped.

        Returns:
            Indexes that only this put kept from being reused.

        Raises:
            Conflict: As ``pin``; a put that ran at the same time was first.
            Revoked: The put outlived its lease and another one took its place.
        """
        indexes = self.pinned(token)
        pin = self._pins[token]
        self._check_kinds(pin.sample_ids, pin.kinds)
        self._unpin(token)
        for position, (sample_id, index) in enumerate(zip(pin.sample_ids, indexes, strict=True)):
            if index in self._orphans:
                self._orphans[index].update(pin.kinds)
                continue
            row = self._row(sample_id, owner)
            row.index = index
            self._by_index[index] = row
            for name, kind in pin.kinds.items():
                self._write(row, name, Cell(token, sizes[name][position], kind))
            if tags is not None:
                row.tags.update(tags[position])
        return self._freed()

    def abort(
        self, token: int, sample_ids: Sequence[str], indexes: Sequence[int], fields: Sequence[str]
    ) -> tuple[list[Freed], list[str]]:
        """Give up a put, pinned or not.

        Returns:
            Indexes that no row needs now, and the ids whose keys must go with them.
        """
        if token in self._pins:
            self._unpin(token)
        vacant = []
        for sample_id, index in zip(sample_ids, indexes, strict=True):
            if index in self._by_index or self._writers.get(index):
                continue
            if index not in self._orphans:
                vacant.append(sample_id)
            self._orphans.setdefault(index, set()).update(fields)
        return self._freed(), vacant

    def stamp(self, sample_ids: Sequence[str], tags: Sequence[Tags], owner: str) -> None:
        """Merge tags key by key into rows, which are made where they don't exist."""
        for sample_id, values in zip(sample_ids, tags, strict=True):
            self._row(sample_id, owner).tags.update(values)

    # Reading

    def locate(
        self, sample_ids: Sequence[str], fields: Sequence[str]
    ) -> tuple[list[int], dict[str, list[list[int]]]]:
        """Where the rows are, and for each field the tokens and the frame sizes of the rows.

        Raises:
            Unready: ``("sample", id)`` or ``("field", name)`` that isn't there.
        """
        rows = []
        for sample_id in sample_ids:
            row = self._rows.get(sample_id)
            if row is None:
                raise Unready("sample", sample_id)
            rows.append(row)
        columns: dict[str, list[list[int]]] = {}
        for name in fields:
            if not all(name in row.cells for row in rows):
                raise Unready("field", name)
            cells = [row.cells[name] for row in rows]
            columns[name] = [[cell.token for cell in cells], [cell.size for cell in cells]]
        return [row.index for row in rows], columns

    def select(
        self, task: str, ready: Iterable[int], fields: Sequence[str], batch_size: int, exact: bool
    ) -> list[Row]:
        """The oldest of the ready rows, at most ``batch_size``; none if ``exact`` and fewer are.

        Rows of a partition with groups come in whole groups.

        Raises:
            Unready: ``("task", name)`` that isn't registered; ``("batch size", ...)``, exact and
                no multiple of the group size.
        """
        self._check_task(task)
        if exact and batch_size % self._group_size:
            raise Unready("batch size", str(self._group_size))
        rows = [
            row
            for index in ready
            if (row := self._by_index.get(index)) and all(name in row.cells for name in fields)
        ]
        rows.sort(key=lambda row: row.order)
        chosen = self._whole_groups(rows, batch_size) if self._group_size > 1 else rows[:batch_size]
        return [] if exact and len(chosen) < batch_size else chosen

    def produced(self, task: str) -> list[int]:
        """Indexes of the rows that hold a field. ``Unready`` if the task isn't registered."""
        self._check_task(task)
        return [row.index for row in self._rows.values() if row.cells]

    @property
    def ever_produced(self) -> bool:
        """Whether a field was ever put since the registration."""
        return self._ever_produced

    # Clearing

    def drop(self, sample_ids: Sequence[str] | None, owner: str) -> tuple[list[Freed], list[str]]:
        """Make rows vanish; ``None`` for all that ``owner`` made, unknown ids are passed over.

        Returns:
            Indexes that may be reused, and the ids whose keys must go.
        """
        if sample_ids is None:
            sample_ids = [row.sample_id for row in self._rows.values() if row.owner == owner]
        dropped = [self._rows.pop(name) for name in sample_ids if name in self._rows]
        for row in dropped:
            if row.index < 0:
                continue
            del self._by_index[row.index]
            self._orphans[row.index] = set(row.cells)
            for name, cell in row.cells.items():
                self._uncount(name, cell.kind)
        return self._freed(), [row.sample_id for row in dropped if row.index >= 0]

    # Inside

    def _row(self, sample_id: str, owner: str) -> Row:
        row = self._rows.get(sample_id)
        if row is None:
            group = self._group_of(sample_id)
            row = self._rows[sample_id] = Row(sample_id, -1, owner, self._next_order, group)
            self._next_order += 1
        return row

    def _group_of(self, sample_id: str) -> tuple[str, int]:
        """G consecutive generations of one ``<uid>_g<i>``; G new rows where ids don't say."""
        match = _GENERATION.fullmatch(sample_id) if self._group_size > 1 else None
        if match is not None:
            return "uid:" + match["uid"], int(match["index"]) // self._group_size
        self._next_ungrouped += 1
        return "", (self._next_ungrouped - 1) // self._group_size

    def _whole_groups(self, rows: Sequence[Row], batch_size: int) -> list[Row]:
        groups: dict[tuple[str, int], list[Row]] = {}
        for row in rows:
            groups.setdefault(row.group, []).append(row)
        whole = [members for members in groups.values() if len(members) == self._group_size]
        return [row for members in whole[: batch_size // self._group_size] for row in members]

    def _write(self, row: Row, name: str, cell: Cell) -> None:
        old = row.cells.get(name)
        if old is not None:
            self._uncount(name, old.kind)
        row.cells[name] = cell
        self._kinds.setdefault(name, Counter())[cell.kind] += 1
        self._ever_produced = True

    def _uncount(self, name: str, kind: str) -> None:
        self._kinds[name][kind] -= 1
        if not self._kinds[name][kind]:
            del self._kinds[name][kind]

    def _check_kinds(self, sample_ids: Iterable[str], kinds: dict[str, str]) -> None:
        rows = [self._rows[name] for name in sample_ids if name in self._rows]
        for name, kind in kinds.items():
            held = self._kinds.get(name, Counter())
            if set(held) <= {kind}:
                continue
            replaced = Counter(row.cells[name].kind for row in rows if name in row.cells)
            others = sorted(set(held - replaced) - {kind})
            if others:
                raise Conflict(f"field {name!r} holds {', '.join(others)} in other rows, not {kind}")

    def _check_task(self, task: str) -> None:
        if task not in self._tasks:
            raise Unready("task", task)

    def _unpin(self, token: int) -> None:
        for index in self._pins.pop(token).indexes:
            writers = self._writers[index]
            writers.discard(token)
            if not writers:
                del self._writers[index]

    def _freed(self) -> list[Freed]:
        """All indexes of dropped rows that no put writes to any more; each is given out once."""
        now = self._clock()
        freed: list[Freed] = []
        for index in list(self._orphans):
            writers = list(self._writers.get(index, ()))
            if any(self._pins[token].expires > now for token in writers):
                continue
            for token in writers:
                self._unpin(token)  # its process is dead or stuck; should it wake, it is revoked
            freed.append([index, sorted(self._orphans.pop(index))])
        return freed
