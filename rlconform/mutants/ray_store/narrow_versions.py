"""What tells a reader whether the rows that it has kept are still right, and holds too little."""

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
    many = 256  # versions
    _writes = State(Counter[tuple[str, str, str]])  # by field of a row, cleared ones included

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        if not isinstance(due, Refusal):
            self._writes.update((put.partition_id, i, n) for i in put.sample_ids for n in columns)
        return due

    async def versions(self, partition_id: str, sample_ids: Ids, names: Names) -> list[int]:
        """Return the version of each field of these rows."""
        writes = self._writes
        return [writes[partition_id, i, name] % self.many for i in sample_ids for name in names]


class _Versioned(ControllerClient):
    controller_class = _CountsWrites


class _CountsWritesFromOne(_CountsWrites):
    many = 255


class _VersionedFromOne(ControllerClient):
    controller_class = _CountsWritesFromOne


class _KeepsByVersion(RayStoreEngine):
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


@ray_engine_mutant("PUT-13", evidence="row", client=_Versioned, may_fail="CLEAR-04")
class VersionsInOneByte(_KeepsByVersion):
    """Keeps what it has read, and takes it for the newest if the versions of the rows are equal."""


@ray_engine_mutant("PUT-13", evidence="row", client=_VersionedFromOne, may_fail="CLEAR-04")
class VersionsFromOneInOneByte(_KeepsByVersion):
    """Compares versions of one byte, as ``VersionsInOneByte`` does, which go from 1 to 255."""


#: The newest changes of which the plane tells readers, and how many a reader's queue has room for.
RING, QUEUE = 256, 1000


class _ListsChanges(Controller):
    ring = RING
    _made = State(int)
    _newest = State(list[tuple[str, str]])  # the rows of the newest changes, by partition and id

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        if not isinstance(due, Refusal):
            self._note(put.partition_id, put.sample_ids)
        return due

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        gone = self._index.sample_ids(partition_id) if sample_ids is None else sample_ids
        self._note(partition_id, list(gone))
        return await super().clear(partition_id, sample_ids, writer)

    def _note(self, partition_id: str, sample_ids: Ids) -> None:
        self._made += len(sample_ids)
        self._newest = [*self._newest, *((partition_id, i) for i in sample_ids)][-self.ring :]

    async def changes(self, seen: int) -> tuple[int, list[tuple[str, str]]]:
        """Return the number of changes so far, and the rows of those that came after ``seen``."""
        return self._made, self._newest[-(self._made - seen) :] if self._made > seen else []


class _Listed(ControllerClient):
    controller_class = _ListsChanges


class _ListsChangesOfOldRows(_ListsChanges):
    ring = 1024
    _old = State(set[str])

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        self._old = set(self._index.sample_ids(put.partition_id))
        return await super().commit(put, columns, reference)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        self._old = set(self._index.sample_ids(partition_id))
        return await super().clear(partition_id, sample_ids, writer)

    def _note(self, partition_id: str, sample_ids: Ids) -> None:
        super()._note(partition_id, [i for i in sample_ids if i in self._old])


class _ListedOld(ControllerClient):
    controller_class = _ListsChangesOfOldRows


class _QueuesChanges(_ListsChanges):
    def _note(self, partition_id: str, sample_ids: Ids) -> None:
        self._made += len(sample_ids)
        self._newest += [(partition_id, i) for i in sample_ids]

    async def changes(self, seen: int) -> tuple[int, list[tuple[str, str]]]:
        """Return the number of changes so far, and the first of those that came after ``seen``."""
        return self._made, self._newest[seen : seen + QUEUE]


class _Queued(ControllerClient):
    controller_class = _QueuesChanges


class _KeepsUntilTold(RayStoreEngine):
    _seen = State(int)
    _kept = State(dict[Any, TensorDict])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        self._seen, changed = self._connection.call("changes", self._seen)
        gone = {(partition, i) for partition, i in changed}
        for key in list(self._kept):
            if any((key[0], i) in gone for i in key[1]):
                del self._kept[key]
        key = partition_id, (*sample_ids,), (*names,)
        if key not in self._kept:
            self._kept[key] = super().get(partition_id, sample_ids, names)
        return self._kept[key].clone()


@ray_engine_mutant("GET-10", evidence="row", client=_Listed, may_fail="PUT-13 GET-06 CLEAR-01")
class ChangesInShortRing(_KeepsUntilTold):
    """Keeps what it has read until the plane lists a change of its rows, of the newest 256."""


@ray_engine_mutant("GET-10", evidence="row", client=_ListedOld, may_fail="PUT-13 GET-06 CLEAR-01")
class ChangesOfOldRowsInRing(_KeepsUntilTold):
    """Keeps what it has read until the plane lists an overwrite or a clear of its rows.

    The list has the newest 1,024 of these; new rows take no place in it.
    """


@ray_engine_mutant("GET-10", evidence="row", client=_Queued, may_fail="PUT-13 GET-06 CLEAR-01")
class ChangesInFullQueue(_KeepsUntilTold):
    """Keeps a row until it is told of a change; a queue holds 1,000 changes for an idle process.

    Those that come to a full queue are dropped.
    """
