"""``RayStoreEngine``: one process's handle on a plane over Ray's object store.

    put    pack ──▶ store ──▶ the controller maps it, commits, wakes the claims that wait
    get    the controller locates ──▶ map the blocks ──▶ read
    clear  the controller drops ──▶ write live rows anew, of blocks that hold more waste than those

A put is not seen before its commit, and one that dies before it leaves nothing: its bytes go with
its process. Whose clear or put makes a block due writes it anew, so the waste of a
block is below its live bytes, or 64 KiB, whenever nobody is at work.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError
from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.columns.column_block import ColumnBlock, bytes_of
from rlconform.backends.columns.compaction import compact
from rlconform.backends.columns.encode import pack, read
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.index import SLACK_BYTES
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.connection import ControllerConnection
from rlconform.backends.ray_store.controller import Location, StoredPut
from rlconform.contract import DataPlaneError, Tags


class RayStoreEngine:
    """The plane behind a session."""

    def __init__(self, connection: ControllerConnection) -> None:
        self._connection = connection

    def check_open(self) -> None:
        """Raise unless the plane can be used."""
        self._connection.check_open()

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare consumer tasks and the size of groups."""
        self._connection.call("register", partition_id, tasks, group_size)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Write columns and tags."""
        columns = pack(fields, len(sample_ids))
        put = StoredPut(partition_id, sample_ids, tags, process_id())
        self._tidy(self._connection.call("commit", put, *self._shipped(columns)))

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows."""
        picked = None
        while picked is None:  # as long as rows are moved between the two looks
            picked = self._pick(self._connection.call("locate", partition_id, sample_ids, names))
        return read(picked, names, len(sample_ids))

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        """Hand rows to the task: all of ``rows`` within ``wait_s``, or up to ``rows`` now."""
        arguments = (partition_id, task, names, rows)
        if wait_s is None:
            sample_ids, tags = self._connection.call("claim", *arguments, None)
            return sample_ids, tags
        deadline = time.monotonic() + wait_s
        claimed = None
        while claimed is None:
            remaining = max(0.0, deadline - time.monotonic())
            claimed = self._connection.call_waiting("claim", remaining, *arguments, remaining)
        sample_ids, tags = claimed
        return sample_ids, tags

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every produced row was claimed by every task."""
        return bool(self._connection.call("all_claimed", partition_id, tasks))

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, with None those that this process put."""
        self._tidy(self._connection.call("clear", partition_id, sample_ids, process_id()))

    def sample_ids(self, partition_id: str) -> list[str]:
        """The ids of a partition's rows."""
        return list(self._connection.call("sample_ids", partition_id))

    def snapshot(self) -> list[SavedPartition]:
        """What a checkpoint must hold beside the values."""
        return list(self._connection.call("snapshot"))

    def restore(self, partition: SavedPartition) -> None:
        """Give a partition, whose rows were put again, its groups and cursors."""
        self._connection.call("restore", partition)

    def close(self) -> None:
        """Let go of the plane, or end it."""
        self._connection.close()

    def _shipped(self, columns: ColumnBlock) -> tuple[Any, list[Any]]:
        """What to send for a columns: itself if it is small, else a reference, also for others."""
        if bytes_of(columns) < SLACK_BYTES:
            return columns, []
        reference = self._connection.store(columns)
        return reference, [reference]

    def _pick(self, locations: list[Location]) -> list[RowSelection] | None:
        """The rows located; None if some lie elsewhere by now."""
        blocks = self._connection.map(
            {at.block: at.reference for at in locations if at.reference is not None}
        )
        if blocks is None:
            return None
        return [
            RowSelection(at.columns or blocks[at.block], at.names, at.indexes, at.positions)
            for at in locations
        ]

    def _tidy(self, due: list[int]) -> None:
        """Write the live rows of blocks anew that hold more waste than those, as far as that goes.

        What was put or cleared is so, whatever becomes of this; the block is due again later.
        """
        with suppress(DataPlaneError, RayError):
            while due:
                due += self._rewrite(due.pop())

    def _rewrite(self, block: int) -> list[int]:
        """Write a block's live rows anew; the new blocks that are due."""
        columns, reference, live = self._connection.call("survivors", block)
        if reference:
            mapped = self._connection.map({block: reference[0]})
            columns = mapped and mapped[block]
        if not live or columns is None:
            return []
        fresh = [(names, *self._shipped(p)) for names, p in compact(columns, live).items()]
        parts = [(live[names], reference) for names, _, reference in fresh]
        sent = [columns for _, columns, _ in fresh]
        return list(self._connection.call("move", block, parts, *sent))
