"""Planes that suit synchronous steps: groups that come, go and fail meanwhile break them."""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.index.row import generation_of
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, StoredPut, answers
from rlconform.contract import CapacityExceeded, KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import give_back, rows_in, take_back
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import rows_of, stack_or_nest


@controller_mutant("ASYNC-03", evidence="not to be readable", chance=False, may_fail="ASYNC-04")
class ClearLeavesWrittenBackColumns(Controller):
    """Keeps each column as an object of its own, and lists a row's objects in its first put.

    A clear deletes the listed objects. Columns that another process wrote back stay, as with
    adapters of key-value stores that know the keys of their own puts only.
    """

    _added_by = State(dict[tuple[str, str, str], str])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        for row in rows_in(self._index, put.partition_id, put.sample_ids):
            for name in parcel.keys() - row.fields:
                self._added_by[put.partition_id, row.sample_id, name] = put.writer
        return await super().commit(put, parcel, reference)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        left: list[str] = []
        for row in rows_in(self._index, partition_id, sample_ids or []):
            keys = {name: (partition_id, row.sample_id, name) for name in row.fields}
            added = {
                n for n, key in keys.items() if self._added_by.pop(key, row.writer) != row.writer
            }
            if added:
                partition = self._index.partition(partition_id)
                for task in row.claimed_by:
                    give_back(partition, [row], task)
                take_back(partition, row, row.fields - added)
                row.tags = {}
                left.append(row.sample_id)
        ids = None if sample_ids is None else [i for i in sample_ids if i not in left]
        return await super().clear(partition_id, ids, writer)


@controller_mutant("ASYNC-03", evidence="is not produced", chance=False)
class ClearFreesWholeWriteBack(Controller):
    """Frees the memory of a write-back as soon as one of its rows is cleared.

    In a synchronous step all rows of a write-back are cleared together; a write-back of several
    groups in flight loses the column for those that stay.
    """

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        cleared = rows_in(self._index, partition_id, sample_ids or [])
        freed = {id(block) for row in cleared for block, _, _ in row.parts[1:]}
        due = await super().clear(partition_id, sample_ids, writer)
        for row in rows_in(self._index, partition_id, None) if freed else ():
            gone = [part for part in row.parts if id(part[0]) in freed]
            row.parts = [part for part in row.parts if part not in gone]
            for _, _, names in gone:
                take_back(self._index.partition(partition_id), row, names)
        return due


@ray_mutant("ASYNC-04", evidence="'x' of 'stale_g0' not to be readable")
class WriteBackSendsWholeRow(RayStoreClient):
    """Stores a row as one object: a process that adds a column sends it with those that it read.

    If the row was cleared meanwhile, this brings it back with its old columns.
    """

    _read = State(lambda: defaultdict[tuple[str, str], dict[str, Any]](dict))

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in select_fields if not self._owner else ():
            if not isinstance(batch.get(name), type(None)):
                for sample_id, row in zip(sample_ids, _rows(batch, name), strict=False):
                    self._read[partition_id, sample_id][name] = row
        return batch

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        return super().put_samples(
            sample_ids, partition_id, self._completed(sample_ids, partition_id, fields), tags
        )

    def _completed(self, sample_ids: Ids, partition_id: str, fields: MaybeBatch) -> MaybeBatch:
        keys = [(partition_id, sample_id) for sample_id in sample_ids]
        if fields is None or not keys or any(key not in self._read for key in keys):
            return fields
        rows = [self._read.pop(key) for key in keys]
        known = set.intersection(*(set(row) for row in rows)) - set(map(str, fields.keys()))
        columns = {name: stack_or_nest([row[name] for row in rows]) for name in sorted(known)}
        return TensorDict({**dict(fields.items()), **columns}, batch_size=[len(keys)])


def _rows(batch: TensorDict, name: str) -> list[Any]:
    """Return the rows of a tensor column; none of an object column."""
    try:
        return rows_of(batch.get(name))
    except TypeError:
        return []


def _group(sample_id: str) -> str | None:
    """Return the group that an id names, or None."""
    generation = generation_of(sample_id)
    return None if generation is None else generation[0]


def _groups(sample_ids: Ids) -> list[str]:
    """Return the groups that ids name, each once."""
    return list(dict.fromkeys(uid for uid in map(_group, sample_ids) if uid))


@controller_mutant("ASYNC-05", evidence="never put, or cleared", chance=False)
class IncompleteGroupClearedByPrefix(Controller):
    """Clears a group by its rows, but by the beginning of its ids if some of the rows are missing.

    The ids of the prompt's next attempt begin alike. Object stores offer such a removal, for
    instance by a pattern.
    """

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        known = [row.sample_id for row in rows_in(self._index, partition_id, sample_ids or [])]
        if sample_ids is not None and len(known) < len(sample_ids):
            begins = tuple(_groups(sample_ids))
            rows = rows_in(self._index, partition_id, None) if begins else []
            sample_ids = [
                *sample_ids,
                *(row.sample_id for row in rows if row.sample_id.startswith(begins)),
            ]
        return await super().clear(partition_id, sample_ids, writer)


@controller_mutant("ASYNC-05", evidence="never put, or cleared", chance=False)
class AbortedPromptRefused(Controller):
    """Remembers groups that were cleared before they were put, to drop their late puts.

    It compares the beginnings of ids, and so drops the prompt's next attempts too.
    """

    _aborted = State(lambda: defaultdict[str, set[str]](set))

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        if sample_ids and not rows_in(self._index, partition_id, sample_ids):
            self._aborted[partition_id].update(f"{uid}-" for uid in _groups(sample_ids))
        return await super().clear(partition_id, sample_ids, writer)

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        aborted = tuple(self._aborted[put.partition_id])
        if aborted and all(sample_id.startswith(aborted) for sample_id in put.sample_ids):
            return []
        return await super().commit(put, parcel, reference)


@controller_mutant("ASYNC-06", evidence="CapacityExceeded", chance=False)
class ClearedGroupsForgottenWhenEmpty(Controller):
    """Has a table of 128 cleared groups for each partition, emptied when the partition is empty.

    That is at the end of each synchronous step, and never in an asynchronous run.
    """

    _tables = State(lambda: defaultdict[str, set[str]](set))

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if len(self._tables[put.partition_id]) > 128:
            raise CapacityExceeded("the partition's table of 128 cleared groups is full")
        return await super().commit(put, parcel, reference)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        self._tables[partition_id].update(_groups(sample_ids or []))
        due = await super().clear(partition_id, sample_ids, writer)
        if not self._index.sample_ids(partition_id):
            self._tables.pop(partition_id, None)
        return due


#: A journal and its replicas. With one journal alone a busy machine hides how slow the calls get.
JOURNALS = 4


@controller_mutant("ASYNC-06", evidence="ms for the fastest of the last", chance=False)
class JournalCutWhenEmpty(Controller):
    """Restores each row of a put or read from a journal, which keeps what cleared groups wrote.

    It compares the journal with its three replicas, so it copies each of them for each row. The
    journal is cut when the partition is empty. In an asynchronous run it only grows, and each call
    takes longer than the one before.
    """

    _journals = State(lambda: defaultdict[str, list[dict[str, Any]]](list))

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        self._restore(put.partition_id, put.sample_ids)
        return await super().commit(put, parcel, reference)

    async def locate(self, partition_id: str, sample_ids: Ids, names: Names) -> Any:
        self._restore(partition_id, sample_ids)
        return await super().locate(partition_id, sample_ids, names)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        for row in rows_in(self._index, partition_id, sample_ids or []):
            if _group(row.sample_id):
                at = {"partition": partition_id, "id": row.sample_id}
                writes = [{"at": dict(at), "field": name} for name in sorted(row.fields)]
                entry = {"writes": writes, "tags": dict(row.tags), "writer": row.writer}
                self._journals[partition_id].append(entry)
        due = await super().clear(partition_id, sample_ids, writer)
        if not self._index.sample_ids(partition_id):
            self._journals.pop(partition_id, None)
        return due

    def _restore(self, partition_id: str, sample_ids: Ids) -> None:
        for _ in filter(_group, sample_ids):
            for _ in range(JOURNALS):
                copy.deepcopy(self._journals[partition_id])
