"""``MemoryEngine``: the engine of the plane in this process's memory, which threads share.

    put    pack, copy ──▶ (lock) commit, wake the waiting claims
    get    (lock) locate ──▶ gather
    claim  (lock) wait on the condition until rows are ready, claim

Nothing is copied under the lock: a put copies before it takes the lock, and a get gathers after it
has released the lock. That is safe because stored columns never change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.columns.encode import pack, read
from rlconform.backends.columns.gather import compact
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.index import CompactedBlock, Index
from rlconform.contract import ClientClosed, PlaneUnavailable, Tags

#: The writer of all rows: there is only one process.
_WRITER = ""


class MemoryPlane:
    """An index behind one lock; a block's payload is its ``ColumnBlock``."""

    def __init__(self, capacity: int | None) -> None:
        self.changed = threading.Condition()  # the lock; wakes the waiting claims
        self.index = Index(capacity)  # used under the lock only
        self.closed = False  # by the owner


_OPEN: list[MemoryPlane] = []  # the planes of this process, the newest last
_LOCK = threading.Lock()


class MemoryEngine:
    """An engine whose ``owner`` starts a plane of at most ``capacity`` rows (None: no limit).

    Other engines attach to the newest plane, or raise ``PlaneUnavailable`` if there is none.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        self._owner = owner
        self._closed = False
        with _LOCK:
            if owner:
                _OPEN.append(MemoryPlane(capacity))
            if not _OPEN:
                raise PlaneUnavailable("no memory plane is open in this process")
            self._plane = _OPEN[-1]

    def check_open(self) -> None:
        if self._closed:
            raise ClientClosed("this client was closed")
        if self._plane.closed:
            raise PlaneUnavailable("the plane's owner closed it")

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
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
        columns = _own(pack(fields, len(sample_ids)))
        with self._locked() as index:
            due = index.commit(
                partition_id, sample_ids, extents_of(columns), columns, tags, _WRITER
            )
            self._plane.changed.notify_all()
        self._compact(due)

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        with self._locked() as index:
            sources = index.locate(partition_id, sample_ids, names)
        selections = [
            RowSelection(s.block.payload, s.names, np.array(s.indexes), np.array(s.positions))
            for s in sources
        ]
        return read(selections, names, len(sample_ids))

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        required = frozenset(names)
        with self._locked() as index:
            if wait_s is not None:
                self._wait_until_ready(partition_id, task, required, rows, wait_s)
            claimed = index.partition(partition_id).claim(task, required, rows)
            return [row.sample_id for row in claimed], [dict(row.tags) for row in claimed]

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        with self._locked() as index:
            return index.all_claimed(partition_id, tasks)

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        with self._locked() as index:
            due = index.clear(partition_id, sample_ids, _WRITER)
        self._compact(due)

    def sample_ids(self, partition_id: str) -> list[str]:
        with self._locked() as index:
            return index.sample_ids(partition_id)

    def snapshot(self) -> list[SavedPartition]:
        with self._locked() as index:
            return index.snapshot()

    def restore(self, partition: SavedPartition) -> None:
        with self._locked() as index:
            index.restore(partition)
            self._plane.changed.notify_all()

    def close(self) -> None:
        with self._plane.changed:
            self._closed = True
            if self._owner:
                self._plane.closed = True
                self._plane.index.clear_all()
            self._plane.changed.notify_all()
        if self._owner:
            with _LOCK, suppress(ValueError):  # closed before
                _OPEN.remove(self._plane)

    @contextmanager
    def _locked(self) -> Iterator[Index]:
        """Lock the plane and yield its index."""
        with self._plane.changed:
            self.check_open()
            yield self._plane.index

    def _compact(self, due: list[int]) -> None:
        """Compact the blocks that are due."""
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
        """Wait on the condition, whose lock is held, until ``rows`` rows can be claimed."""
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
    """Copy the columns, so that they share no memory with the batch; shared offsets stay shared."""
    known = {id(column.offsets): column.offsets for column in columns.values()}
    copies = {key: None if array is None else array.copy() for key, array in known.items()}
    return {
        name: replace(column, values=column.values.copy(), offsets=copies[id(column.offsets)])
        for name, column in columns.items()
    }
