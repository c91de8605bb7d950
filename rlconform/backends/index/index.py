"""``Index``: the partitions of one plane and the blocks in which their rows lie.

commit ──▶ rows point at a new block ─┐
clear  ──▶ rows go ───────────────────┴─▶ numbers of the blocks that are due
survivors(number) ──▶ (whoever asked writes those rows anew) ──▶ move(number, ...)
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
    """Live rows of a block, written anew.

    Attributes:
        indexes: Their places in the old block, in the order of the new one.
        extents: The new block's columns.
        payload: Where its bytes lie.
    """

    indexes: list[int]
    extents: Mapping[str, Extent]
    payload: Any


@dataclass(frozen=True, slots=True)
class Usage:
    """What a plane holds.

    Attributes:
        rows: In all partitions.
        blocks: Pieces that their bytes lie in.
        live_bytes: Bytes of values that can be read, and 8 for the place of each.
        wasted_bytes: Bytes of values in those blocks that were cleared or overwritten.
    """

    rows: int
    blocks: int
    live_bytes: int
    wasted_bytes: int


class Index:
    """What a plane knows of its rows. It neither locks nor waits: its holder does.

    Args:
        capacity: Rows that it holds at most; None for no limit.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._partitions: dict[str, PartitionIndex] = {}
        self._numbers = count()
        # Rows hold their blocks; one without rows is gone, and its bytes with it.
        self._blocks: WeakValueDictionary[int, Block] = WeakValueDictionary()

    def register(self, partition_id: str, tasks: Sequence[str], group_size: int) -> None:
        """Declare a partition's tasks and the size of its groups."""
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
        """Make a put visible, all of it at once; the numbers of the blocks that are due.

        Raises:
            ValueError: A field would hold rows of two dtypes.
            CapacityExceeded: There is no room for the new rows.
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
        """Where the rows' fields lie. ``LookupError`` if one of them isn't there."""
        return self.partition(partition_id).locate(sample_ids, names)

    def partition(self, partition_id: str) -> PartitionIndex:
        """The partition. ``UnknownPartition`` if there is none."""
        partition = self._partitions.get(partition_id)
        if partition is None:
            raise UnknownPartition(f"partition {partition_id!r} was never registered nor written")
        return partition

    def all_claimed(self, partition_id: str, tasks: Sequence[str]) -> bool:
        """Whether all that was produced was claimed by every task."""
        partition = self._partitions.get(partition_id)
        return partition is not None and partition.all_claimed(tasks)

    def clear(self, partition_id: str, sample_ids: Sequence[str] | None, writer: str) -> list[int]:
        """Drop rows, with None those that ``writer`` put; the numbers of the blocks now due."""
        partition = self._partitions.get(partition_id)
        if partition is None:
            return []
        ids = partition.rows_of(writer) if sample_ids is None else sample_ids
        return _release(partition.clear(ids))

    def sample_ids(self, partition_id: str) -> list[str]:
        """The ids of a partition's rows, the oldest first; none where there is no partition."""
        partition = self._partitions.get(partition_id)
        return [] if partition is None else partition.sample_ids

    def snapshot(self) -> list[SavedPartition]:
        """What a checkpoint must hold beside the values."""
        each = (partition.snapshot(name) for name, partition in self._partitions.items())
        return [saved for saved in each if saved is not None]

    def restore(self, saved: SavedPartition) -> None:
        """Give a partition, whose rows were put again, its groups and cursors."""
        self.partition(saved.partition_id).restore(saved)

    def clear_all(self) -> None:
        """Forget everything."""
        self._partitions.clear()

    def usage(self) -> Usage:
        """What the plane holds."""
        blocks = list(self._blocks.values())
        return Usage(
            sum(partition.size for partition in self._partitions.values()),
            len(blocks),
            sum(block.live_bytes for block in blocks),
            sum(block.wasted_bytes for block in blocks),
        )

    def payload(self, number: int) -> Any:
        """A block's payload; None for a block that is gone."""
        block = self._blocks.get(number)
        return None if block is None else block.payload

    def survivors(self, number: int) -> tuple[Any, Selection]:
        """A due block's payload and live rows by live fields, for the caller to write anew.

        Nothing for a block that is gone, or that somebody else writes anew.
        """
        block = self._blocks.get(number)
        partition = None if block is None else self._partitions.get(block.partition_id)
        if block is None or partition is None or not block.due:
            return None, {}
        block.hand_out()
        return block.payload, partition.survivors(block)

    def move(self, number: int, rewritten: Sequence[CompactedBlock]) -> list[int]:
        """Let a block's rows lie where they were written anew, as far as they are still there.

        Returns:
            The numbers of the new blocks that are due in turn, as most of their rows have gone.
        """
        old = self._blocks.get(number)
        partition = None if old is None else self._partitions.get(old.partition_id)
        if old is None or partition is None:
            return []
        due = []
        for part in rewritten:
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


def _release(hidden: Mapping[Block, Selection]) -> list[int]:
    """Count what isn't needed any more as waste; the numbers of the blocks that are due."""
    for block, selection in hidden.items():
        for names, indexes in selection.items():
            block.release(names, indexes)
    return [block.number for block in hidden if block.due]
