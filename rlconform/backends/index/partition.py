"""``PartitionIndex``: rows, tags and cursors of one partition, without locks, clocks or bytes.

put ──▶ rows, by age ──(a claim scans rows it has not seen)──▶ ready queue ──▶ claim
         │      └──(the last required field of a scanned row)────▲
         └── locate, until cleared
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from rlconform.backends.checkpoint_state import SavedPartition, SavedRow
from rlconform.backends.index.block import Block, Extent, Names, Selection, Source, kinds_of
from rlconform.backends.index.ready_queue import ReadyQueue, TaskQueues
from rlconform.backends.index.row import NO_NAMES, IndexRow, group_of
from rlconform.backends.index.schema import Schema
from rlconform.contract import Tags, UnknownField, UnknownSample, UnknownTask

# Rows are many and their sets of fields are few, so set operations are cached.
_minus = lru_cache(4096)(frozenset[str].__sub__)
_both = lru_cache(4096)(frozenset[str].__or__)
_common = lru_cache(4096)(frozenset[str].__and__)


class PartitionIndex:
    """One partition. Every method either succeeds or raises without having changed anything."""

    def __init__(self) -> None:
        self._tasks: set[str] = set()
        self._group_size = 1
        self._forget()

    def _forget(self) -> None:
        """Reset to the state of a new partition."""
        self._rows: dict[str, IndexRow] = {}
        self._written: dict[str, dict[str, None]] = defaultdict(dict)  # ids by row.writer
        self._fields = Schema()
        self._queues = TaskQueues()
        self._claimed: Counter[str] = Counter()  # produced rows by the task that claimed them
        self._produced = 0  # rows with at least one field
        self._ever_produced = False
        self._next_age = 0
        self._next_ungrouped = 0

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(self._rows)

    @property
    def sample_ids(self) -> list[str]:
        """The ids of the rows, oldest first."""
        return list(self._rows)

    def snapshot(self, partition_id: str) -> SavedPartition | None:
        """Return the state without values, for a checkpoint; None for a partition without state."""
        if not (self._rows or self._tasks or self._ever_produced):
            return None
        return SavedPartition(
            partition_id,
            sorted(self._tasks),
            self._group_size,
            self._ever_produced,
            self._next_ungrouped,
            [
                SavedRow(r.sample_id, sorted(r.fields), dict(r.tags), sorted(r.claimed_by), r.group)
                for r in self._rows.values()
            ],
        )

    def restore(self, saved: SavedPartition) -> None:
        """Restore groups and cursors of rows that were put again; call it before any claim."""
        for each in saved.rows:
            row = self._rows[each.sample_id]
            row.group = each.group
            row.claimed_by = frozenset(each.claimed_by)
            self._claimed.update(each.claimed_by)
        self._ever_produced = saved.ever_produced
        self._next_ungrouped = saved.next_ungrouped

    def register(self, tasks: Collection[str], group_size: int) -> None:
        """Add tasks; reset an empty partition. ``ValueError`` if rows have another group size."""
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
        """Return how many of the ids are new."""
        return sum(sample_id not in self._rows for sample_id in sample_ids)

    def check_kinds(self, sample_ids: Sequence[str], extents: Mapping[str, Extent]) -> None:
        """Raise ``ValueError`` if a put of these columns would give a field rows of two dtypes."""
        self._fields.check(self._rows, sample_ids, kinds_of(extents))

    def put(
        self,
        sample_ids: Sequence[str],
        block: Block | None,
        tags: Sequence[Tags] | None,
        writer: str,
    ) -> dict[Block, Selection]:
        """Add columns and tags to rows, which are created if they don't exist.

        Returns the overwritten values of other blocks. Keeps the dicts of ``tags``, without a copy.
        """
        wasted: dict[Block, Selection] = defaultdict(lambda: defaultdict(list))
        extended: list[tuple[IndexRow, Names]] = []
        known, new = self._rows, list[IndexRow]()
        names = NO_NAMES if block is None else block.names
        for index, sample_id in enumerate(sample_ids):
            row = known.get(sample_id)
            if row is None:
                row = IndexRow(sample_id, self._next_age + len(new), writer, names)
                known[sample_id] = row
                new.append(row)
                if block is not None:
                    row.parts.append((block, index, names))
            elif block is not None:
                if not row.fields:
                    self._change_writer(row, writer)
                self._write(row, block, index, wasted, extended)
            if tags is not None:
                row.tags = {**row.tags, **tags[index]} if row.tags else tags[index]
        self._add_new(new, writer)
        if block is not None:
            grown = Counter(fresh for _, fresh in extended)
            self._fields.add(kinds_of(block.extents), len(new), grown)
            # a row that had no field before has only fresh ones
            self._produced += len(new) + sum(row.fields == fresh for row, fresh in extended)
            self._ever_produced |= self._produced > 0
            self._queues.feed(extended)
        return wasted

    def locate(self, sample_ids: Sequence[str], names: Collection[str]) -> list[Source]:
        """Find the blocks that hold the named fields; each field of each row is in one source.

        ``UnknownSample`` if an id is unknown, ``UnknownField`` if a field isn't produced for an id.
        """
        wanted = frozenset(names)
        sources: dict[tuple[Block, Names], Source] = {}
        for position, sample_id in enumerate(sample_ids):
            row = self._rows.get(sample_id)
            if row is None:
                raise UnknownSample(f"no sample {sample_id!r}: never put, or cleared")
            if not wanted <= row.fields:
                missing = next(name for name in names if name not in row.fields)
                raise UnknownField(f"field {missing!r} is not produced for sample {sample_id!r}")
            for block, index, live in row.parts:
                source = sources.get((block, live))
                if source is None:
                    source = Source(block, _common(live, wanted), [], [])
                    sources[block, live] = source
                source.indexes.append(index)
                source.positions.append(position)
        return [source for source in sources.values() if source.names]

    def check_exact(self, batch_size: int) -> None:
        """Raise ``ValueError`` unless ``batch_size`` is a multiple of the group size."""
        if batch_size % self._group_size:
            raise ValueError(
                f"a blocking claim waits for batch_size={batch_size} rows, which is no multiple of "
                f"grpo_group_size={self._group_size}"
            )

    def is_ready(self, task: str, required: Names, batch_size: int) -> bool:
        """Whether the task may claim ``batch_size`` rows; ``UnknownTask`` if not registered."""
        units = batch_size // self._group_size
        return len(self._ready(task, required, units)) >= units

    def claim(self, task: str, required: Names, batch_size: int) -> list[IndexRow]:
        """Claim the oldest ready rows for the task, at most ``batch_size``, in whole groups."""
        units = batch_size // self._group_size
        rows = self._ready(task, required, units).take(units)
        this = frozenset([task])
        for row in rows:
            row.claimed_by = _both(row.claimed_by, this)
        self._queues.discard(rows, task)
        self._claimed[task] += len(rows)
        return rows

    def all_claimed(self, tasks: Iterable[str]) -> bool:
        """Whether rows were produced, and all of the tasks have claimed all rows that remain."""
        return self._ever_produced and all(
            task in self._tasks and self._claimed[task] == self._produced for task in tasks
        )

    def rows_of(self, writer: str) -> list[str]:
        """Return the ids of the rows that the process ``writer`` put."""
        return list(self._written.get(writer, ()))

    def clear(self, sample_ids: Iterable[str]) -> dict[Block, Selection]:
        """Delete rows with tags and cursors; return their values by block. Ignore unknown ids."""
        wasted: dict[Block, Selection] = defaultdict(lambda: defaultdict(list))
        held: Counter[Names] = Counter()
        claimed: Counter[Names] = Counter()
        deleted: list[IndexRow] = []
        for sample_id in sample_ids:
            row = self._rows.pop(sample_id, None)
            if row is None:
                continue
            del self._written[row.writer][sample_id]
            for block, index, names in row.parts:
                wasted[block][names].append(index)
            deleted.append(row)
            held[row.fields] += 1
            claimed[row.claimed_by] += 1
            row.parts, row.fields, row.tags = [], NO_NAMES, {}
        self._queues.discard(deleted)
        self._fields.drop(held)
        self._produced -= sum(count for names, count in held.items() if names)
        for tasks, count in claimed.items():
            for task in tasks:
                self._claimed[task] -= count
        self._queues.tidy(self._rows)
        if not self._rows:
            self._written.clear()
        return wasted

    def survivors(self, block: Block) -> Selection:
        """Return the rows of a block that can still be read, grouped by the readable fields."""
        live: Selection = defaultdict(list)
        for index, sample_id in enumerate(block.sample_ids):
            row = self._rows.get(sample_id)
            for held, place, names in row.parts if row is not None else ():
                if held is block and place == index:
                    live[names].append(index)
        return live

    def move(self, old: Block, new: Block, indexes: Sequence[int]) -> None:
        """Point those rows of the old block that can still be read at the new block.

        ``indexes`` are their places in the old block, in the order of the new block's rows.
        """
        for place, (index, sample_id) in enumerate(zip(indexes, new.sample_ids, strict=True)):
            row = self._rows.get(sample_id)
            parts = row.parts if row is not None else []
            kept = NO_NAMES
            for n, (held, at, names) in enumerate(parts):
                if held is old and at == index and names <= new.names:
                    parts[n] = (new, place, names)
                    kept = names
            if kept != new.names:
                new.release(_minus(new.names, kept), [place])

    def _add_new(self, new: list[IndexRow], writer: str) -> None:
        """Add new rows, in this order, to the groups, the writers' ids and the queues."""
        if self._group_size > 1:
            for row in new:
                row.group = group_of(row.sample_id, self._group_size, self._next_ungrouped)
                self._next_ungrouped += row.group[0] is None
        self._written[writer].update((row.sample_id, None) for row in new)
        self._queues.extend(new)
        self._next_age += len(new)

    def _change_writer(self, row: IndexRow, writer: str) -> None:
        """Assign a row that had only tags to the process that puts its first fields."""
        del self._written[row.writer][row.sample_id]
        self._written[writer][row.sample_id] = None
        row.writer = writer

    @staticmethod
    def _write(
        row: IndexRow,
        block: Block,
        index: int,
        wasted: dict[Block, Selection],
        extended: list[tuple[IndexRow, Names]],
    ) -> None:
        """Point a row's fields at the block; add the values that they replace to ``wasted``."""
        parts = []
        for old, place, held in row.parts:
            left = _minus(held, block.names)
            if left != held:
                wasted[old][_common(held, block.names)].append(place)
            if left:
                parts.append((old, place, left))
        parts.append((block, index, block.names))
        row.parts = parts
        fresh = _minus(block.names, row.fields)
        if fresh:
            extended.append((row, fresh))
            row.fields = _both(row.fields, fresh)

    def _ready(self, task: str, required: Names, units: int) -> ReadyQueue:
        """Return the task's queue; scan rows until it has ``units`` rows or groups."""
        if task not in self._tasks:
            raise UnknownTask(f"task {task!r} is not registered: one of {sorted(self._tasks)}")
        return self._queues.ready(task, required, self._group_size, units)
