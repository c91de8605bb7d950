"""``Controller``: the Ray actor that holds a plane's index and keeps its bytes alive.

    client ──commit, claim, locate, clear──▶ Controller: Index
       └──columns──▶ object store ◀──maps───────┘
       ◀───maps───────────┘

Calls run on one event loop and never await in the middle of their work, so each is atomic. A
blocking claim awaits a future that the next change of its partition sets. The claim then returns
None instead of rows, and its client calls again, so a client that died meanwhile takes no rows.

Ray deletes an object when the process that stored it ends. The controller maps every block, so the
bytes stay; a reader that finds the object lost lets the controller store it again. Blocks below
64 KiB are sent with the call and don't use the object store.

The actor imports no torch, so that it starts quickly and needs little memory.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import os
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

#: Calls that may run or wait at the same time.
CONCURRENT_CLAIMS = 100_000
#: Longest timeout of an event loop in seconds; longer waits are unlimited.
_LONGEST_WAIT_S = 1e9


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error that is returned as an answer; the caller raises it without Ray's wrapping."""

    error: Exception


@dataclass(slots=True)
class StoredBlock:
    """The bytes of one block."""

    columns: ColumnBlock  # mapped if they are in the object store
    reference: Any | None  # with which readers map them; None for small ones, which are sent


@dataclass(frozen=True, slots=True)
class Location:
    """The part of a read whose values are in one block."""

    block: int  # its number
    columns: ColumnBlock | None  # if they are sent
    reference: Any | None  # else: with which to map them
    names: frozenset[str]  # the fields to take from it
    indexes: npt.NDArray[np.int32]  # (K,) rows of the block
    positions: npt.NDArray[np.int32]  # (K,) rows of the result that they are copied to


@dataclass(frozen=True, slots=True)
class StoredPut:
    """A put without its columns."""

    partition_id: str
    sample_ids: list[str]
    tags: list[Tags] | None
    writer: str


def answers(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Decorate a method so that it returns errors of the index as a ``Refusal``."""

    @functools.wraps(method)
    async def call(*args: Any) -> Any:
        try:
            return await method(*args)
        except (DataPlaneError, LookupError, ValueError, TimeoutError) as error:
            return Refusal(error)

    return call


class Controller:
    """The actor with a plane's index and the claims that wait for rows."""

    def __init__(self, capacity: int | None) -> None:
        # Rows are many, long-lived and without cycles: at the default thresholds, garbage
        # collection would take longer than every other large put.
        gc.set_threshold(1_000_000, 10, 10)
        self._index = Index(capacity)
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}  # by partition

    async def ready(self) -> bool:
        """Return True, which shows that the actor runs."""
        return True

    async def pid(self) -> int:
        """Return the actor's process id."""
        return os.getpid()

    @answers
    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare a partition's tasks and group size."""
        self._index.register(partition_id, tasks, group_size)
        self._wake(partition_id)

    @answers
    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> list[int]:
        """Make a put visible; return the blocks that are due for compaction.

        ``reference`` contains the columns' reference, or nothing if the columns were sent.
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
        """Find the blocks with these fields of these rows."""
        locations = []
        for source in self._index.locate(partition_id, sample_ids, names):
            kept: StoredBlock = source.block.payload
            locations.append(
                Location(
                    source.block.number,
                    {name: kept.columns[name] for name in source.names}
                    if kept.reference is None
                    else None,
                    kept.reference,
                    source.names,
                    np.array(source.indexes, np.int32),
                    np.array(source.positions, np.int32),
                )
            )
        return locations

    async def waiting(self, partition_id: str) -> int:
        """Return how many claims wait for rows of the partition."""
        return len(self._waiting.get(partition_id, ()))

    async def usage(self) -> Usage:
        """Return the plane's memory use."""
        return self._index.usage()

    @answers
    async def rescue(self, block: int, lost: list[Any]) -> list[Any]:
        """Store a block again, whose object was lost; return [its reference], or [] if freed."""
        kept: StoredBlock | None = self._index.payload(block)
        if kept is None:
            return []
        if kept.reference == lost[0]:
            try:
                kept.reference = ray.put(kept.columns)
            except (ObjectStoreFullError, OutOfDiskError) as error:
                raise CapacityExceeded("the store is too full to restore lost rows") from error
            kept.columns = ray.get(kept.reference)  # and release the lost object
        return [kept.reference]

    @answers
    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]] | None:
        """Claim up to ``rows`` rows now if ``wait_s`` is None, else exactly ``rows`` in ``wait_s``.

        Returns None after a wait, when the caller must call again.
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
        """Return the ids of a partition's rows."""
        return self._index.sample_ids(partition_id)

    async def snapshot(self) -> list[SavedPartition]:
        """Return the state of all partitions without values, for a checkpoint."""
        return self._index.snapshot()

    @answers
    async def restore(self, partition: SavedPartition) -> None:
        """Restore the groups and cursors of a partition whose rows were put again."""
        self._index.restore(partition)
        self._wake(partition.partition_id)

    @answers
    async def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Return whether all of the tasks have claimed every produced row."""
        return self._index.all_claimed(partition_id, tasks)

    @answers
    async def clear(
        self, partition_id: str, sample_ids: list[str] | None, writer: str
    ) -> list[int]:
        """Delete rows; return the blocks that are due for compaction."""
        return self._index.clear(partition_id, sample_ids, writer)

    async def survivors(
        self, block: int
    ) -> tuple[ColumnBlock | None, list[Any], dict[frozenset[str], list[int]]]:
        """Start to compact a block: return its columns or [their reference], and its live rows."""
        kept, live = self._index.survivors(block)
        if kept is None or kept.reference is None:
            return (kept.columns if kept else None), [], dict(live)
        return None, [kept.reference], dict(live)

    async def move(
        self, block: int, parts: list[tuple[list[int], list[Any]]], *blocks: ColumnBlock
    ) -> list[int]:
        """Point a block's rows at their copies in new ``blocks``, one for each of ``parts``.

        A part has the places of rows in the old block, and the new columns' reference, if any.
        Returns the new blocks that are due for compaction already.
        """
        compacted = [
            CompactedBlock(rows, extents_of(columns), StoredBlock(columns, *reference or [None]))
            for (rows, reference), columns in zip(parts, blocks, strict=True)
        ]
        return self._index.move(block, compacted)

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
        """Wake the claims that wait for this partition."""
        for changed in self._waiting.pop(partition_id, ()):
            if not changed.done():
                changed.set_result(None)
