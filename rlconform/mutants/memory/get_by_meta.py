"""Planes whose ``get_data`` reads other fields or rows than the meta names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownSample
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import (
    PrefetchesClaims,
    get_data_mutant,
    held,
    mark,
    memory_mutant,
    rows_in,
)
from rlconform.mutants.types import Ids, Names


@get_data_mutant("GET-01 GET-11 PUT-21", evidence="of get_data: row 0 of 'x' =", may_fail="GET-02")
def GetDataInStoredOrder(read: MethodCall) -> TensorDict:
    """Returns rows of get_data in stored order if the meta is not from a claim."""
    named = getattr(read.meta, "sample_ids", None)
    if type(read.meta) is not KVBatchMeta or not named or read.meta.task_name:
        return read()
    rows = held(read.plane, read.meta.partition_id)._rows
    stored = sorted(named, key=lambda sample_id: rows[sample_id].age if sample_id in rows else -1)
    return read(meta=replace(read.meta, sample_ids=stored))


@get_data_mutant("GET-02", evidence="row 3 of 'x'", may_fail="GET-01")
def GetDataRepeatedRowsReordered(read: MethodCall) -> TensorDict:
    """Fills a shard with repeats of all its rows in turn, not of the row that the meta repeats."""
    ids = getattr(read.meta, "sample_ids", None) or []
    once = list(dict.fromkeys(ids))
    if len(once) == len(ids):
        return read()
    return read(meta=replace(read.meta, sample_ids=(once * len(ids))[: len(ids)]))


class TracksClears(MemoryClient):
    """A client that records which rows were cleared."""

    _gone = State(set[tuple[str, str]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._gone.difference_update((partition_id, i) for i in sample_ids)
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._gone.update((partition_id, i) for i in sample_ids or ())


@get_data_mutant("GET-06", evidence="a row that was cleared", plane=TracksClears)
def GetDataClearedRowsSkipped(read: MethodCall) -> TensorDict:
    """Silently leaves out cleared rows in get_data and returns a shorter batch."""
    ids = getattr(read.meta, "sample_ids", None) or []
    left = [i for i in ids if (read.meta.partition_id, i) not in read.plane._gone]
    return read(meta=replace(read.meta, sample_ids=left)) if left else read()


@get_data_mutant("GET-06", evidence="the meta of rows cleared since", plane=PrefetchesClaims)
def GetDataReturnsClearedRows(read: MethodCall) -> TensorDict:
    """Returns the last claimed batch from get_data even after its rows were cleared."""
    try:
        return read()
    except UnknownSample:
        fetched = read.plane.fetched(read.meta)
        if fetched is None:
            raise
        return fetched.clone()


@get_data_mutant("GET-07", evidence="a shard without rows")
def GetDataEmptyMetaRefused(read: MethodCall) -> TensorDict:
    """Raises an error in get_data for an empty shard, because the shard has no longest row."""
    if not getattr(read.meta, "sample_ids", True):
        raise ValueError("a shard without rows has no longest one")
    return read()


@get_data_mutant("GET-11", evidence="select_fields=['y']")
def GetDataFieldsOfMetaAdded(read: MethodCall) -> TensorDict:
    """Returns the meta's fields from get_data in addition to ``select_fields``."""
    named = getattr(read.meta, "fields", None)
    both = [*named, *read.select_fields] if named and read.select_fields else read.select_fields
    return read(select_fields=both)


@get_data_mutant("GET-11", evidence="a meta that names no fields")
def GetDataWithoutFieldsReadsAll(read: MethodCall) -> TensorDict:
    """Returns every field from get_data if neither the meta nor the caller names any."""
    try:
        return read()
    except ValueError:
        if read.select_fields is not None or not read.meta.sample_ids:
            raise
        row = held(read.plane, read.meta.partition_id)._rows[read.meta.sample_ids[0]]
        return read(select_fields=sorted(row.fields))


@get_data_mutant("GET-11", evidence="after a read by an old meta")
def GetDataConfirmsClaim(read: MethodCall) -> TensorDict:
    """Marks the ids of a claim's meta as claimed again, also if they are new rows by now."""
    batch, meta = read(), read.meta
    if task := getattr(meta, "task_name", None):
        with read.plane._engine._locked() as index:
            rows = rows_in(index, meta.partition_id, meta.sample_ids)
            mark(held(read.plane, meta.partition_id), rows, task)
    return batch


@memory_mutant("GET-01", evidence="row 0 of 'x' =")
class GetDataInOrderOfClaim(MemoryClient):
    """Returns the rows of a claim in the order of the claim, even if the meta was rearranged.

    Planes that prefetch claimed batches, and find them by a hash of the set of ids, do so.
    """

    _claims = State(dict[tuple[str, frozenset[str]], Ids])

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        self._claims[partition_id, frozenset(meta.sample_ids)] = list(meta.sample_ids)
        return meta

    def get_data(self, meta: KVBatchMeta, select_fields: Names | None = None) -> TensorDict:
        if getattr(meta, "task_name", None):
            ids = self._claims.get((meta.partition_id, frozenset(meta.sample_ids)), [])
            if len(ids) == len(meta.sample_ids):
                meta = replace(meta, sample_ids=ids)
        return super().get_data(meta, select_fields)


@get_data_mutant("GET-01", evidence="row 0 of 'x' =")
def GetDataInOrderOfEarlierRead(read: MethodCall) -> TensorDict:
    """Returns rows in the order of the first read of the same rows, even if the meta's differs.

    Planes that keep plans of reads, and find them by the set of ids, do so.
    """
    ids = getattr(read.meta, "sample_ids", None) or []
    fields = read.select_fields or getattr(read.meta, "fields", None)
    if not fields or len(set(ids)) < len(ids):
        return read()
    plan = read.notes.setdefault((read.meta.partition_id, frozenset(ids), *fields), list(ids))
    return read(meta=replace(read.meta, sample_ids=plan))


@get_data_mutant("GET-11", evidence="row 0 of 'input_ids'")
def GetDataTrimmedToLengths(read: MethodCall) -> TensorDict:
    """Sends of a dense column only what the longest row of a claim needs, in steps of 64 tokens."""
    batch: TensorDict = read()
    lengths = getattr(read.meta, "sequence_lengths", None) or [0]
    width = -(-max(lengths) // 64) * 64
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if is_dense(leaf) and leaf.dim() > 1 and 0 < width < leaf.shape[1]:
            batch.set(name, leaf[:, :width].clone())
    return batch
