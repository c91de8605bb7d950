"""``MemoryEngine``: one process's handle on a plane in its memory.

    put   pack, copy ──▶ (lock) commit, wake the claims that wait
    get   (lock) locate ──▶ read
    claim (lock) wait until ready, claim

Nothing is copied under the lock: a put copies before it takes the lock, and a read gathers after it
let go, as a columns never changes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.columns.compaction import compact
from rlconform.backends.columns.encode import pack, read
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.index import CompactedBlock, Index
from rlconform.backends.memory.registry import MemoryPlane, newest_plane, start_plane, stop_plane
from rlconform.contract import ClientClosed, PlaneUnavailable, Tags

#: There is one process, so all rows are its own.
_WRITER = ""


class MemoryEngine:
    """A handle on a plane; ``owner`` starts one of at most ``capacity`` rows, None for no limit.

    Raises:
        PlaneUnavailable: There is no plane to attach to.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        self._owner = owner
        self._plane: MemoryPlane = start_plane(capacity) if owner else newest_plane()
        self._closed = False

    def check_open(self) -> None:
        """Raise unless the plane can be used."""
        if self._closed:
            raise ClientClosed("this client was closed")
        if self._plane.closed:
            raise PlaneUnavailable("the plane's owner closed it")

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare consumer tasks and the size of groups."""
        with self._locked() as index:
            index.register(partition_id, tasks, group_size)
            self._plane.changed.notify_all()

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Write copies of columns and tags."""
        columns = _own(pack(fields, len(sample_ids)))
        with self._locked() as index:
            due = index.commit(
                partition_id, sample_ids, extents_of(columns), columns, tags, _WRITER
            )
            self._plane.changed.notify_all()
        self._rewrite(due)

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows."""
        with self._locked() as index:
            sources = index.locate(partition_id, sample_ids, names)
        picked = [
            RowSelection(s.block.payload, s.names, np.array(s.indexes), np.array(s.positions))
            for s in sources
        ]
        return read(picked, names, len(sample_ids))

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        """Hand rows to the task: all of ``rows`` within ``wait_s``, or up to ``rows`` now."""
        required = frozenset(names)
        with self._locked() as index:
            if wait_s is not None:
                self._wait_until_ready(partition_id, task, required, rows, wait_s)
            claimed = index.partition(partition_id).claim(task, required, rows)
            return [row.sample_id for row in claimed], [dict(row.tags) for row in claimed]

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every produced row was claimed by every task."""
        with self._locked() as index:
            return index.all_claimed(partition_id, tasks)

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, with None all of them."""
        with self._locked() as index:
            due = index.clear(partition_id, sample_ids, _WRITER)
        self._rewrite(due)

    def sample_ids(self, partition_id: str) -> list[str]:
        """The ids of a partition's rows."""
        with self._locked() as index:
            return index.sample_ids(partition_id)

    def snapshot(self) -> list[SavedPartition]:
        """What a checkpoint must hold beside the values."""
        with self._locked() as index:
            return index.snapshot()

    def restore(self, partition: SavedPartition) -> None:
        """Give a partition, whose rows were put again, its groups and cursors."""
        with self._locked() as index:
            index.restore(partition)
            self._plane.changed.notify_all()

    def close(self) -> None:
        """Let go of the plane; the owner's close ends it, with everything in it."""
        with self._plane.changed:
            self._closed = True
            if self._owner:
                self._plane.closed = True
                self._plane.index.clear_all()
            self._plane.changed.notify_all()
        if self._owner:
            stop_plane(self._plane)

    @contextmanager
    def _locked(self) -> Iterator[Index]:
        """The plane's index, under its lock."""
        with self._plane.changed:
            self.check_open()
            yield self._plane.index

    def _rewrite(self, due: list[int]) -> None:
        """Write the live rows of blocks that hold more waste than those anew."""
        while due:
            number = due.pop()
            with self._plane.changed:
                columns, live = self._plane.index.survivors(number)
            if not live:
                continue
            fresh = compact(columns, live)
            parts = [
                CompactedBlock(live[names], extents_of(new), new) for names, new in fresh.items()
            ]
            with self._plane.changed:
                due += self._plane.index.move(number, parts)

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        """Wait, holding the lock, until ``rows`` rows can be claimed."""
        deadline = time.monotonic() + wait_s
        while True:
            partition = self._plane.index.partition(partition_id)
            partition.check_exact(rows)
            if partition.is_ready(task, required, rows):
                return
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError(
                    f"{partition_id!r} has no {rows} rows with {sorted(required)} for task {task!r}"
                )
            self._plane.changed.wait(min(remaining, threading.TIMEOUT_MAX))
            self.check_open()


def _own(columns: ColumnBlock) -> ColumnBlock:
    """The columns in memory that nobody else has; equal offsets stay one array."""
    known = {id(column.offsets): column.offsets for column in columns.values()}
    copies = {key: None if array is None else array.copy() for key, array in known.items()}
    return {
        name: replace(column, values=column.values.copy(), offsets=copies[id(column.offsets)])
        for name, column in columns.items()
    }
