"""``RayStoreEngine``: one process's handle on a plane over Ray's object store.

    put    pack ──▶ store ──▶ the controller maps it, commits, wakes the claims that wait
    get    the controller locates ──▶ map the parcels ──▶ read
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
from rlconform.backends.columns.compaction import live_parcels
from rlconform.backends.columns.decode import read
from rlconform.backends.columns.encode import pack
from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.index import SLACK_BYTES
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.connection import ControllerConnection
from rlconform.backends.ray_store.controller import Location, StoredPut
from rlconform.contract import DataPlaneError, Tags


class RayStoreEngine:
    """The plane behind a session."""

    def __init__(self, session: ControllerConnection) -> None:
        self._session = session

    def check_open(self) -> None:
        """Raise unless the plane can be used."""
        self._session.check_open()

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        """Declare consumer tasks and the size of groups."""
        self._session.call("register", partition_id, tasks, group_size)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Write columns and tags."""
        parcel = pack(fields, len(sample_ids))
        put = StoredPut(partition_id, sample_ids, tags, process_id())
        self._tidy(self._session.call("commit", put, *self._shipped(parcel)))

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows."""
        picked = None
        while picked is None:  # as long as rows are moved between the two looks
            picked = self._pick(self._session.call("locate", partition_id, sample_ids, names))
        return read(picked, names, len(sample_ids))

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        """Hand rows to the task: all of ``rows`` within ``wait_s``, or up to ``rows`` now."""
        arguments = (partition_id, task, names, rows)
        if wait_s is None:
            sample_ids, tags = self._session.call("claim", *arguments, None)
            return sample_ids, tags
        deadline = time.monotonic() + wait_s
        claimed = None
        while claimed is None:
            remaining = max(0.0, deadline - time.monotonic())
            claimed = self._session.call_waiting("claim", remaining, *arguments, remaining)
        sample_ids, tags = claimed
        return sample_ids, tags

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every produced row was claimed by every task."""
        return bool(self._session.call("all_claimed", partition_id, tasks))

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, with None those that this process put."""
        self._tidy(self._session.call("clear", partition_id, sample_ids, process_id()))

    def sample_ids(self, partition_id: str) -> list[str]:
        """The ids of a partition's rows."""
        return list(self._session.call("sample_ids", partition_id))

    def snapshot(self) -> list[SavedPartition]:
        """What a checkpoint must hold beside the values."""
        return list(self._session.call("snapshot"))

    def restore(self, partition: SavedPartition) -> None:
        """Give a partition, whose rows were put again, its groups and cursors."""
        self._session.call("restore", partition)

    def close(self) -> None:
        """Let go of the plane, or end it."""
        self._session.close()

    def _shipped(self, parcel: ColumnBlock) -> tuple[Any, list[Any]]:
        """What to send for a parcel: itself if it is small, else a reference, also for others."""
        if bytes_of(parcel) < SLACK_BYTES:
            return parcel, []
        reference = self._session.store(parcel)
        return reference, [reference]

    def _pick(self, locations: list[Location]) -> list[RowSelection] | None:
        """The rows located; None if some lie elsewhere by now."""
        parcels = self._session.map(
            {at.block: at.reference for at in locations if at.reference is not None}
        )
        if parcels is None:
            return None
        return [
            RowSelection(at.parcel or parcels[at.block], at.names, at.indexes, at.positions)
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
        parcel, reference, live = self._session.call("survivors", block)
        if reference:
            mapped = self._session.map({block: reference[0]})
            parcel = mapped and mapped[block]
        if not live or parcel is None:
            return []
        fresh = [(names, *self._shipped(p)) for names, p in live_parcels(parcel, live).items()]
        parts = [(live[names], reference) for names, _, reference in fresh]
        sent = [parcel for _, parcel, _ in fresh]
        return list(self._session.call("move", block, parts, *sent))
