"""``Index``: the partitions of one plane and the blocks in which their rows are stored.

commit ──▶ rows point at a new block ─┐
clear  ──▶ rows are deleted ──────────┴─▶ numbers of the blocks to compact
survivors(number) ──▶ (the caller copies the live rows) ──▶ move(number, new blocks)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakValueDictionary

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.index.block import Block, Extent, Selection, Source
from rlconform.backends.index.partition import PartitionIndex
from rlconform.contract import CapacityExceeded, Tags, UnknownPartition


@dataclass(frozen=True, slots=True)
class CompactedBlock:
    """A new block with copies of live rows of an old block."""

    indexes: list[int]  # their places in the old block, in the order of the new one
    extents: Mapping[str, Extent]  # of the new block
    payload: Any  # where its bytes are stored


@dataclass(frozen=True, slots=True)
class Usage:
    """The memory use of a plane."""

    rows: int
    blocks: int
    live_bytes: int  # of values that can be read, and 8 for each value
    wasted_bytes: int  # the same for values that were cleared or overwritten


class Index:
    """The rows of a plane, without their bytes. Locking and waiting are left to the caller.

    ``capacity`` is the maximum number of rows, None for no limit.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._partitions: dict[str, PartitionIndex] = {}
        self._numbers = count()
        # Rows keep their blocks alive; a block without rows is freed, with its bytes.
        self._blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()

    def register(self, partition_id: str, tasks: Sequence[str], group_size: int) -> None:
        """Declare a partition's tasks and group size."""
        self._partitions.setdefault(partition_id, PartitionIndex()).register(tasks, group_size)

    def commit(
        self,
        partition_id: str,
        sample_ids: Sequence[str],
        extents: Mapping[str, Extent],
        payload: Any,
        tags: Sequence[Tags] | None,
        writer: str,
    ) -> list[int]:
        """Make a put visible as a whole; return the numbers of blocks to compact.

        ``ValueError`` if a field would have rows of two dtypes, ``CapacityExceeded`` if the plane
        can't hold the new rows.
        """
        partition = self._partitions.get(partition_id) or PartitionIndex()
        self._check_room(partition, sample_ids)
        partition.check_kinds(sample_ids, extents)
        block = None
        if extents:
            block = self._new_block(partition_id, sample_ids, extents, payload)
        self._partitions[partition_id] = partition
        return _release(partition.put(sample_ids, block, tags, writer))

    def locate(
        self, partition_id: str, sample_ids: Sequence[str], names: Sequence[str]
    ) -> list[Source]:
        """Find the blocks with these fields of the rows. ``LookupError`` if any is missing."""
        return self.partition(partition_id).locate(sample_ids, names)

    def partition(self, partition_id: str) -> PartitionIndex:
        """Return a partition. ``UnknownPartition`` if there is none of this name."""
        partition = self._partitions.get(partition_id)
        if partition is None:
            raise UnknownPartition(f"partition {partition_id!r} was never registered nor written")
        return partition

    def all_claimed(self, partition_id: str, tasks: Sequence[str]) -> bool:
        """Return whether all of the tasks have claimed every produced row."""
        partition = self._partitions.get(partition_id)
        return partition is not None and partition.all_claimed(tasks)

    def clear(self, partition_id: str, sample_ids: Sequence[str] | None, writer: str) -> list[int]:
        """Delete rows (None: all that ``writer`` put); return the numbers of blocks to compact."""
        partition = self._partitions.get(partition_id)
        if partition is None:
            return []
        ids = partition.rows_of(writer) if sample_ids is None else sample_ids
        return _release(partition.clear(ids))

    def sample_ids(self, partition_id: str) -> list[str]:
        """Return the ids of a partition's rows, oldest first; [] for an unknown partition."""
        partition = self._partitions.get(partition_id)
        return [] if partition is None else partition.sample_ids

    def snapshot(self) -> list[SavedPartition]:
        """Return the state of all partitions without values, for a checkpoint."""
        each = (partition.snapshot(name) for name, partition in self._partitions.items())
        return [saved for saved in each if saved is not None]

    def restore(self, saved: SavedPartition) -> None:
        """Restore the groups and cursors of a partition whose rows were put again."""
        self.partition(saved.partition_id).restore(saved)

    def clear_all(self) -> None:
        """Delete all partitions."""
        self._partitions.clear()

    def usage(self) -> Usage:
        """Return the plane's memory use."""
        blocks = list(self._blocks.values())
        return Usage(
            sum(partition.size for partition in self._partitions.values()),
            len(blocks),
            sum(block.live_bytes for block in blocks),
            sum(block.wasted_bytes for block in blocks),
        )

    def payload(self, number: int) -> Any:
        """Return a block's payload; None for a freed block."""
        block = self._blocks.get(number)
        return None if block is None else block.payload

    def survivors(self, number: int) -> tuple[Any, Selection]:
        """Start to compact a block: return its payload and live rows; (None, {}) if not due."""
        block = self._blocks.get(number)
        partition = None if block is None else self._partitions.get(block.partition_id)
        if block is None or partition is None or not block.due:
            return None, {}
        block.start_compaction()
        return block.payload, partition.survivors(block)

    def move(self, number: int, compacted: Sequence[CompactedBlock]) -> list[int]:
        """Point those rows of a block that still exist at their copies in new blocks.

        Returns the numbers of new blocks to compact already, because most of their rows are gone.
        """
        old = self._blocks.get(number)
        partition = None if old is None else self._partitions.get(old.partition_id)
        if old is None or partition is None:
            return []
        due = []
        for part in compacted:
            sample_ids = [old.sample_ids[index] for index in part.indexes]
            new = self._new_block(old.partition_id, sample_ids, part.extents, part.payload)
            partition.move(old, new, part.indexes)
            if new.due:
                due.append(new.number)
        return due

    def _new_block(
        self,
        partition_id: str,
        sample_ids: Sequence[str],
        extents: Mapping[str, Extent],
        payload: Any,
    ) -> Block:
        block = Block(next(self._numbers), partition_id, sample_ids, extents, payload)
        self._blocks[block.number] = block
        return block

    def _check_room(self, partition: PartitionIndex, sample_ids: Sequence[str]) -> None:
        if self._capacity is None:
            return
        held = sum(each.size for each in self._partitions.values())
        new = partition.count_new(sample_ids)
        if held + new > self._capacity:
            raise CapacityExceeded(
                f"{new} new rows beside {held}: the plane holds {self._capacity} at most "
                "(data_plane.storage_capacity)"
            )


def _release(wasted: Mapping[Block, Selection]) -> list[int]:
    """Count values as waste; return the numbers of blocks to compact."""
    for block, selection in wasted.items():
        for names, indexes in selection.items():
            block.release(names, indexes)
    return [block.number for block in wasted if block.due]
