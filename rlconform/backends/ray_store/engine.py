"""``RayStoreEngine``: the engine of a plane in Ray's object store, in one client process.

    put    pack ──▶ object store ──▶ controller: map, commit, wake the waiting claims
    get    controller: locate ──▶ map the blocks ──▶ gather
    clear  controller: delete rows ──▶ compact the blocks that are due

A put is invisible before its commit. If a process dies before that, Ray deletes its objects. A
block is due once its waste reaches its live bytes and 64 KiB; the process whose clear or put causes
this compacts the block, so between calls no block is due.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError
from tensordict import TensorDict, TensorDictBase

from rlconform.backends.checkpoint_state import SavedPartition
from rlconform.backends.columns.column_block import ColumnBlock, bytes_of
from rlconform.backends.columns.encode import pack, read
from rlconform.backends.columns.gather import compact
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.index import SLACK_BYTES
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.connection import ControllerConnection
from rlconform.backends.ray_store.controller import Location, StoredPut
from rlconform.contract import DataPlaneError, Tags


class RayStoreEngine:
    """The engine of one client, over its connection to the controller."""

    def __init__(self, connection: ControllerConnection) -> None:
        self._connection = connection

    def check_open(self) -> None:
        self._connection.check_open()

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        self._connection.call("register", partition_id, tasks, group_size)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        columns = pack(fields, len(sample_ids))
        put = StoredPut(partition_id, sample_ids, tags, process_id())
        self._compact_due(self._connection.call("commit", put, *self._shipped(columns)))

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        selections = None
        while selections is None:  # repeat if a compaction moved rows between the two calls
            selections = self._pick(
                self._connection.call("locate", partition_id, sample_ids, names)
            )
        return read(selections, names, len(sample_ids))

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        arguments = (partition_id, task, names, rows)
        claimed: tuple[list[str], list[Tags]] | None = None
        if wait_s is None:
            claimed = self._connection.call("claim", *arguments, None)
        deadline = time.monotonic() + (wait_s or 0.0)
        while claimed is None:
            remaining = max(0.0, deadline - time.monotonic())
            claimed = self._connection.call_waiting("claim", remaining, *arguments, remaining)
        return claimed

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        return bool(self._connection.call("all_claimed", partition_id, tasks))

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        self._compact_due(self._connection.call("clear", partition_id, sample_ids, process_id()))

    def sample_ids(self, partition_id: str) -> list[str]:
        return list(self._connection.call("sample_ids", partition_id))

    def snapshot(self) -> list[SavedPartition]:
        return list(self._connection.call("snapshot"))

    def restore(self, partition: SavedPartition) -> None:
        self._connection.call("restore", partition)

    def close(self) -> None:
        self._connection.close()

    def _shipped(self, columns: ColumnBlock) -> tuple[Any, list[Any]]:
        """Return arguments that send columns: small columns themselves, large ones by reference."""
        if bytes_of(columns) < SLACK_BYTES:
            return columns, []
        reference = self._connection.store(columns)
        return reference, [reference]

    def _pick(self, locations: list[Location]) -> list[RowSelection] | None:
        """Map the located rows; return None if some were moved or cleared meanwhile."""
        blocks = self._connection.map(
            {at.block: at.reference for at in locations if at.reference is not None}
        )
        if blocks is None:
            return None
        return [
            RowSelection(at.columns or blocks[at.block], at.names, at.indexes, at.positions)
            for at in locations
        ]

    def _compact_due(self, due: list[int]) -> None:
        """Compact the blocks that are due, ignoring failures.

        The put or clear before has succeeded; a block whose compaction fails is due again.
        """
        with suppress(DataPlaneError, RayError):
            while due:
                due += self._compact(due.pop())

    def _compact(self, block: int) -> list[int]:
        """Compact a block; return the numbers of the new blocks that are due already."""
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
