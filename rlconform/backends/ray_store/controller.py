"""``Controller``: the actor that holds a plane's index, and on to its bytes.

    client ──commit, claim, locate, clear──▶ Controller: Index
       └──columns──▶ object store ◀──maps──────┘
       ◀───maps──────────┘

Calls run on one event loop and never wait in the middle of their work, so each is atomic. A claim
that has to wait sleeps on a future that the next change of its partition sets. Woken, it hands
nothing out but tells its client to ask again: one whose process died meanwhile takes no rows along.

An object belongs to the process that put it, and Ray lets go of it when that process ends. The
controller maps every columns, so its bytes stay; a reader who finds that the owner is gone has the
controller put them again. Parcels under 64 KiB don't go through the object store at all.

The actor imports no torch: it starts in a moment, and holds no more memory than it must.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray.exceptions import ObjectStoreFullError, OutOfDiskError

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.index import CompactedBlock, Index, Usage
from rlconform.contract import CapacityExceeded, DataPlaneError, Tags

#: Calls that may run, or wait, at the same time.
CONCURRENT_CLAIMS = 100_000
#: Seconds that an event loop can count to; longer waits have no end.
_LONGEST_WAIT_S = 1e9


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a call answers in place of raising, so that its caller gets the error and no trace."""

    error: Exception


@dataclass(slots=True)
class StoredBlock:
    """A block's bytes.

    Attributes:
        columns: They themselves, mapped if they lie in the object store.
        reference: For readers to map them by; None for a small columns, which is sent along.
    """

    columns: ColumnBlock
    reference: Any | None


@dataclass(frozen=True, slots=True)
class Location:
    """Where some fields of some of the rows asked for lie.

    Attributes:
        block: Number of the block.
        columns, reference: Its bytes, or the reference to map them by.
        names: The fields to take from it.
        indexes, positions: (K,) rows of the columns, and of the result that they become.
    """

    block: int
    columns: ColumnBlock | None
    reference: Any | None
    names: frozenset[str]
    indexes: npt.NDArray[np.int32]
    positions: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class StoredPut:
    """A put but for its columns."""

    partition_id: str
    sample_ids: list[str]
    tags: list[Tags] | None
    writer: str


def answers(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Answer with a ``Refusal`` where the index refuses."""

    @functools.wraps(method)
    async def call(*args: Any) -> Any:
        try:
            return await method(*args)
        except (DataPlaneError, LookupError, ValueError, TimeoutError) as error:
            return Refusal(error)

    return call


class Controller:
    """A plane's index, and the waiting of its claims."""

    def __init__(self, capacity: int | None) -> None:
        # Rows are many, long-lived and hold no cycles: looking for some at the usual pace would
        # stop every other large put for longer than the put itself takes.
        gc.set_threshold(1_000_000, 10, 10)
        self._index = Index(capacity)
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}  # by partition

    async def ready(self) -> bool:
        """True once the actor runs."""
        return True

    @answers
    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare a partition's tasks and the size of its groups."""
        self._index.register(partition_id, tasks, group_size)
        self._wake(partition_id)

    @answers
    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> list[int]:
        """Make a put visible; the blocks that are due.

        ``reference`` holds that to the columns, or nothing if the columns was sent along.
        """
        due = self._index.commit(
            put.partition_id,
            put.sample_ids,
            extents_of(columns),
            StoredBlock(columns, *reference or [None]),
            put.tags,
            put.writer,
        )
        self._wake(put.partition_id)
        return due

    @answers
    async def locate(
        self, partition_id: str, sample_ids: list[str], names: list[str]
    ) -> list[Location]:
        """Where the rows' fields lie."""
        locations = []
        for source in self._index.locate(partition_id, sample_ids, names):
            kept: StoredBlock = source.block.payload
            locations.append(
                Location(
                    source.block.number,
                    _some(kept.columns, source.names) if kept.reference is None else None,
                    kept.reference,
                    source.names,
                    np.array(source.indexes, np.int32),
                    np.array(source.positions, np.int32),
                )
            )
        return locations

    async def waiting(self, partition_id: str) -> int:
        """How many claims wait for rows of the partition."""
        return len(self._waiting.get(partition_id, ()))

    async def usage(self) -> Usage:
        """What the plane holds."""
        return self._index.usage()

    @answers
    async def rescue(self, block: int, lost: list[Any]) -> list[Any]:
        """A reference to a block's bytes in place of a lost one; none if the block is gone.

        Raises:
            CapacityExceeded: There is no room for them.
        """
        kept: StoredBlock | None = self._index.payload(block)
        if kept is None:
            return []
        if kept.reference == lost[0]:
            try:
                kept.reference = ray.put(kept.columns)
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise CapacityExceeded("no room to put rows again that were lost") from error
            kept.columns = ray.get(kept.reference)  # and let go of the lost object
        return [kept.reference]

    @answers
    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]] | None:
        """Claim up to ``rows`` rows now (``wait_s`` None), or exactly as many.

        Returns:
            The rows; None where it had to wait for them and the caller is to ask again.

        Raises:
            TimeoutError: There weren't as many within ``wait_s``.
        """
        required = frozenset(names)
        partition = self._index.partition(partition_id)
        if wait_s is not None:
            partition.check_exact(rows)
            if not partition.is_ready(task, required, rows):
                await self._wait(partition_id, task, required, rows, time.monotonic() + wait_s)
                return None
        claimed = partition.claim(task, required, rows)
        return [row.sample_id for row in claimed], [row.tags for row in claimed]

    async def sample_ids(self, partition_id: str) -> list[str]:
        """The ids of a partition's rows."""
        return self._index.sample_ids(partition_id)

    async def snapshot(self) -> list[SavedPartition]:
        """What a checkpoint must hold beside the values."""
        return self._index.snapshot()

    @answers
    async def restore(self, partition: SavedPartition) -> None:
        """Give a partition, whose rows were put again, its groups and cursors."""
        self._index.restore(partition)
        self._wake(partition.partition_id)

    @answers
    async def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every produced row was claimed by every task."""
        return self._index.all_claimed(partition_id, tasks)

    @answers
    async def clear(
        self, partition_id: str, sample_ids: list[str] | None, writer: str
    ) -> list[int]:
        """Drop rows; the blocks that are due."""
        return self._index.clear(partition_id, sample_ids, writer)

    async def survivors(
        self, block: int
    ) -> tuple[ColumnBlock | None, list[Any], dict[frozenset[str], list[int]]]:
        """A due block's columns, or the reference to map it by, and its live rows."""
        kept, live = self._index.survivors(block)
        if kept is None or kept.reference is None:
            return (kept.columns if kept else None), [], dict(live)
        return None, [kept.reference], dict(live)

    async def move(
        self, block: int, parts: list[tuple[list[int], list[Any]]], *blocks: ColumnBlock
    ) -> list[int]:
        """Let a block's rows lie where they were written anew: in the blocks, part by part.

        A part names the rows of the old block, and the columns's reference, if any.

        Returns:
            The blocks that are due in turn.
        """
        return self._index.move(
            block,
            [
                CompactedBlock(
                    rows, extents_of(columns), StoredBlock(columns, *reference or [None])
                )
                for (rows, reference), columns in zip(parts, blocks, strict=True)
            ],
        )

    async def _wait(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, deadline: float
    ) -> None:
        while not self._index.partition(partition_id).is_ready(task, required, rows):
            remaining = deadline - time.monotonic()
            changed = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(partition_id, set())
            waiting.add(changed)
            try:
                await asyncio.wait_for(changed, min(remaining, _LONGEST_WAIT_S))
            except TimeoutError:
                raise TimeoutError(
                    f"{partition_id!r} has no {rows} rows with {sorted(required)} for task {task!r}"
                ) from None
            finally:
                waiting.discard(changed)

    def _wake(self, partition_id: str) -> None:
        """Let the claims that wait for this partition look again."""
        for changed in self._waiting.pop(partition_id, ()):
            if not changed.done():
                changed.set_result(None)


def _some(columns: ColumnBlock, names: frozenset[str]) -> ColumnBlock:
    """These columns of a columns."""
    return {name: columns[name] for name in names}
