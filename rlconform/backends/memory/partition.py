"""``Partition``: rows, tags and cursors of one address space, without locks or clocks.

    put ──▶ rows ──(last required field)──▶ ready queue of (task, fields) ──▶ claim
             │                                        │
             └── read, until cleared                  └── count against the task: all_claimed

A queue is built the first time its task asks for its fields and kept up by puts and clears from
then on, so that a claim never looks at rows it doesn't hand out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from rlconform.backends.memory.cells import Cell
from rlconform.backends.memory.ready import ReadyQueue
from rlconform.backends.memory.rows import GroupKey, Row, generation_of
from rlconform.contract import Tags, UnknownField, UnknownSample, UnknownTask


@dataclass(slots=True)
class _Field:
    """A field's kind, and how many rows hold it: the kind may change with all of them at once."""

    kind: torch.dtype | Literal["object"]
    holders: int = 0


class Partition:
    """One address space. Every method either does all of its work or raises before any of it."""

    def __init__(self) -> None:
        self._tasks: set[str] = set()
        self._group_size = 1
        self._forget()

    def _forget(self) -> None:
        """Be as new: no rows, no cursors, nothing ever produced."""
        self._rows: dict[str, Row] = {}
        self._fields: dict[str, _Field] = {}
        self._queues: dict[tuple[str, frozenset[str]], ReadyQueue] = {}
        self._claimed: Counter[str] = Counter()  # produced rows by the task that claimed them
        self._produced = 0  # rows with at least one field
        self._ever_produced = False
        self._next_age = 0
        self._next_ungrouped = 0

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def register(self, tasks: Collection[str], group_size: int) -> None:
        """Declare consumer tasks. An empty partition starts anew, one with rows is extended.

        Raises:
            ValueError: The partition holds rows that were grouped by another size.
        """
        if not self._rows:
            self._forget()
            self._tasks.clear()
        elif group_size != self._group_size:
            raise ValueError(
                f"grpo_group_size can't change from {self._group_size} to {group_size} while the "
                f"partition holds {len(self._rows)} rows"
            )
        self._tasks.update(tasks)
        self._group_size = group_size

    def count_new(self, sample_ids: Iterable[str]) -> int:
        """How many of the ids aren't here yet."""
        return sum(sample_id not in self._rows for sample_id in sample_ids)

    def put(
        self,
        sample_ids: Sequence[str],
        columns: Mapping[str, Sequence[Cell]],
        tags: Sequence[Tags] | None,
    ) -> None:
        """Write columns and tags of rows, which are made where they don't exist.

        Raises:
            ValueError: A field would hold rows of two dtypes.
        """
        for name, cells in columns.items():
            self._check_kind(name, sample_ids, cells)
        for index, sample_id in enumerate(sample_ids):
            row = self._rows.get(sample_id) or self._new_row(sample_id)
            if tags is not None:
                row.tags.update(tags[index])
            self._write(row, {name: cells[index] for name, cells in columns.items()})

    def read(self, sample_ids: Iterable[str], names: Sequence[str]) -> dict[str, list[Cell]]:
        """The cells of the named fields, by field, in the order of the ids.

        Raises:
            UnknownSample: An id isn't here.
            UnknownField: A field isn't produced for every id.
        """
        columns: dict[str, list[Cell]] = {name: [] for name in names}
        for sample_id in sample_ids:
            row = self._rows.get(sample_id)
            if row is None:
                raise UnknownSample(f"no sample {sample_id!r}: never put, or cleared")
            for name, cells in columns.items():
                if name not in row.cells:
                    raise UnknownField(f"field {name!r} is not produced for sample {sample_id!r}")
                cells.append(row.cells[name])
        return columns

    def groups_in(self, batch_size: int) -> int:
        """How many whole groups fit in ``batch_size`` rows."""
        return batch_size // self._group_size

    def check_exact(self, batch_size: int) -> None:
        """``ValueError`` unless whole groups can make up exactly ``batch_size`` rows."""
        if batch_size % self._group_size:
            raise ValueError(
                f"a blocking claim waits for batch_size={batch_size} rows, which is no multiple of "
                f"grpo_group_size={self._group_size}"
            )

    def ready_groups(self, task: str, required: frozenset[str]) -> int:
        """How many whole groups the task may claim. ``UnknownTask`` if it isn't registered."""
        return len(self._queue(task, required))

    def claim(self, task: str, required: frozenset[str], groups: int) -> list[Row]:
        """Hand the oldest ready rows to the task, at most ``groups`` groups of them."""
        rows = self._queue(task, required).take(groups)
        for row in rows:
            row.claimed_by.add(task)
            for (other, _), queue in self._queues.items():
                if other == task:
                    queue.discard(row)
        self._claimed[task] += len(rows)
        return rows

    def all_claimed(self, tasks: Iterable[str]) -> bool:
        """Whether rows were produced and each of them that is left was claimed by every task."""
        return self._ever_produced and all(
            task in self._tasks and self._claimed[task] == self._produced for task in tasks
        )

    def clear(self, sample_ids: Iterable[str]) -> None:
        """Drop rows with their tags and cursors; ids that aren't here are passed over."""
        for sample_id in sample_ids:
            row = self._rows.pop(sample_id, None)
            if row is not None:
                self._drop(row)

    def clear_all(self) -> None:
        """Drop every row."""
        self.clear(list(self._rows))

    def _check_kind(self, name: str, sample_ids: Sequence[str], cells: Sequence[Cell]) -> None:
        field = self._fields.get(name)
        if field is None or field.kind == cells[0].kind:
            return
        replaced = sum(
            name in self._rows[sample_id].cells
            for sample_id in sample_ids
            if sample_id in self._rows
        )
        if replaced < field.holders:
            raise ValueError(
                f"field {name!r} holds {field.kind} in {field.holders - replaced} other rows; a "
                f"put of {cells[0].kind} must replace all of them"
            )

    def _new_row(self, sample_id: str) -> Row:
        row = Row(sample_id, self._next_age, self._group_of(sample_id))
        self._next_age += 1
        self._rows[sample_id] = row
        return row

    def _group_of(self, sample_id: str) -> GroupKey:
        """G consecutive generations of one uid; G consecutive new rows where ids don't say."""
        generation = generation_of(sample_id) if self._group_size > 1 else None
        if generation is not None:
            uid, index = generation
            return uid, index // self._group_size
        self._next_ungrouped += 1
        return None, (self._next_ungrouped - 1) // self._group_size

    def _write(self, row: Row, cells: Mapping[str, Cell]) -> None:
        """Store cells and tell the queues that waited for one of them."""
        fresh = cells.keys() - row.cells.keys()
        if fresh and not row.cells:
            self._produced += 1
            self._ever_produced = True
        row.cells.update(cells)
        for name, cell in cells.items():
            field = self._fields.setdefault(name, _Field(cell.kind))
            field.kind = cell.kind
            field.holders += name in fresh
        for (task, required), queue in self._queues.items():
            if not required.isdisjoint(fresh) and _is_ready(row, task, required):
                queue.add(row)

    def _drop(self, row: Row) -> None:
        for name in row.cells:
            field = self._fields[name]
            field.holders -= 1
            if not field.holders:
                del self._fields[name]
        self._produced -= bool(row.cells)
        self._claimed.subtract(row.claimed_by)
        for queue in self._queues.values():
            queue.discard(row)

    def _queue(self, task: str, required: frozenset[str]) -> ReadyQueue:
        if task not in self._tasks:
            raise UnknownTask(f"task {task!r} is not registered: one of {sorted(self._tasks)}")
        queue = self._queues.get((task, required))
        if queue is None:
            queue = self._queues[task, required] = ReadyQueue(self._group_size)
            for row in self._rows.values():
                if _is_ready(row, task, required):
                    queue.add(row)
        return queue


def _is_ready(row: Row, task: str, required: frozenset[str]) -> bool:
    return task not in row.claimed_by and required <= row.cells.keys()
