"""Versions of rows in one byte, by which a reader tells whether what it has kept is still right."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_engine_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


class _CountsWrites(Controller):
    _writes = State(Counter[tuple[str, str, str]])  # by field of a row, cleared ones included

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        if not isinstance(due, Refusal):
            self._writes.update((put.partition_id, i, n) for i in put.sample_ids for n in columns)
        return due

    async def versions(self, partition_id: str, sample_ids: Ids, names: Names) -> list[int]:
        """Return the version of each field of these rows."""
        writes = self._writes
        return [writes[partition_id, i, name] % 256 for i in sample_ids for name in names]


class _Versioned(ControllerClient):
    controller_class = _CountsWrites


@ray_engine_mutant("PUT-13", evidence="row", client=_Versioned, may_fail="CLEAR-04")
class VersionsInOneByte(RayStoreEngine):
    """Keeps what it has read, and takes it for the newest if the versions of the rows are equal."""

    _kept = State(dict[Any, tuple[list[int], TensorDict]])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        self._kept.clear()
        super().put(partition_id, ids, fields, tags)

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        key = partition_id, (*sample_ids,), (*names,)
        versions = self._connection.call("versions", partition_id, sample_ids, names)
        fresh = super().get(partition_id, sample_ids, names)
        before, batch = self._kept.setdefault(key, (versions, fresh.clone()))
        if before == versions:
            return batch.clone()
        self._kept[key] = versions, fresh.clone()
        return fresh
