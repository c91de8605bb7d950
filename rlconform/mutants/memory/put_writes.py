"""Puts that write to other rows or fields than they name, or store part of a refused put."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownField
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import (
    get_samples_mutant,
    held,
    known_rows,
    memory_mutant,
    names_of,
    partition_of,
    put_mutant,
    put_samples_mutant,
)
from rlconform.mutants.types import Ids, Names
from rlconform.wire import is_object_column, object_array, object_rows, rows_of, stack_or_nest


@put_samples_mutant("PUT-11", may_fail="PUT-12", evidence="row:")
def PutLaterColumnInStoredOrder(put: MethodCall) -> KVBatchMeta:
    """Stores a later column of all rows in stored order, not in the order of the put's ids."""
    rows, names = partition_of(put)._rows, names_of(put.fields)
    new = names.isdisjoint(name for row in rows.values() for name in row.fields)
    if put.tags is not None or not names or not new or set(rows) != set(put.sample_ids):
        return put()
    return replace(put(sample_ids=list(rows)), sample_ids=put.sample_ids)


@get_samples_mutant("PUT-12", evidence="'y' of 'u0_g1' not to be readable")
def GetOneRowZeroFills(read: MethodCall) -> TensorDict:
    """Returns zeros in a read of one row for a field that only other rows have."""
    try:
        return read()
    except UnknownField:
        known = {name for row in partition_of(read)._rows.values() for name in row.fields}
        if len(read.sample_ids) > 1 or not known.issuperset(read.select_fields):
            raise
        zeros = {name: torch.zeros(1, 1, dtype=torch.uint8) for name in read.select_fields}
        return TensorDict(zeros, batch_size=[1])


@put_mutant("PUT-12", evidence="'y' of 'r301' not to be readable")
def PutGapsBetweenRangesFilled(put: MethodCall) -> None:
    """Records a field's rows in at most 16 ranges, so gaps between more count as rows of zeros."""
    put()
    rows = list(partition_of(put)._rows.values())
    for name in names_of(put.fields):
        leaf, has = put.fields.get(name), [name in row.fields for row in rows]
        starts = [n for n, pair in enumerate(pairwise([False, *has])) if pair == (False, True)]
        gaps = [row.sample_id for row in rows[starts[0] : starts[-1]] if name not in row.fields]
        if len(starts) > 16 and isinstance(leaf, Tensor) and is_dense(leaf):
            zeros = leaf.new_zeros(len(gaps), *leaf.shape[1:])
            put(sample_ids=gaps, fields=TensorDict({name: zeros}, [len(gaps)]), tags=None)


@memory_mutant("PUT-12", evidence="no row ready for 'train' beside ['full']")
class PutFieldMaskWraps(MemoryClient):
    """Marks produced fields in a mask of 64 bits, in which fields 1 and 65 share a bit."""

    _numbers = State(dict[str, list[str]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        numbers = self._numbers.setdefault(partition_id, [])
        numbers += [name for name in receipt.fields or () if name not in numbers]
        return receipt

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: Names, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        numbers = self._numbers.get(partition_id, [])
        bits = [numbers[numbers.index(f) % 64] if f in numbers else f for f in required_fields]
        meta = super().claim_meta(partition_id, task_name, bits, *args, **kwargs)
        return replace(meta, fields=list(required_fields))


@put_samples_mutant("PUT-15", evidence="|x|v1")
def PutOverwritesBeforeLengthCheck(put: MethodCall) -> KVBatchMeta:
    """Overwrites existing rows before it rejects a put with too few or too many tags."""
    wrong = put.tags is not None and len(put.tags) != len(put.sample_ids)
    if wrong and names_of(put.fields) and len(known_rows(put)) == len(put.sample_ids):
        put(tags=None)
    return put()


@put_samples_mutant("PUT-15", evidence="a put whose parts differ in length")
def PutFirstLengthsZipped(put: MethodCall) -> KVBatchMeta:
    """Cuts ids and rows of a partition's first put to equal length instead of rejecting the put."""
    if not isinstance(put.fields, TensorDict) or partition_of(put).size or not put.sample_ids:
        return put()
    count = min(len(put.sample_ids), *put.fields.batch_size)
    return put(sample_ids=put.sample_ids[:count], fields=put.fields[:count])


@put_samples_mutant("PUT-15", evidence="a put whose parts differ in length")
def PutEmptyTagsBesideRowsAccepted(put: MethodCall) -> KVBatchMeta:
    """Tests ``if tags:``, so it accepts rows with an empty list of tags."""
    return put() if put.fields is None else put(tags=put.tags or None)


@put_samples_mutant("PUT-16", evidence="no tag of the failed put")
def PutFailedTagsStored(put: MethodCall) -> KVBatchMeta:
    """Stores the tags of a put that it rejects for its columns (NR-07)."""
    try:
        return put()
    except TypeError:
        if put.tags is not None and isinstance(put.fields, TensorDict):
            put(fields=None)
        raise


@memory_mutant("PUT-16 LIFE-07", evidence="every row still consumed")
class PutFailedRowsCounted(MemoryClient):
    """Counts the rows of a failed put, so the partition is never consumed (NR-05, NR-07)."""

    _ghosts = State(set[str])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, *args, **kw)
        except (TypeError, ValueError):
            if isinstance(sample_ids, list) and held(self, partition_id).size:
                self._ghosts.add(partition_id)
            raise

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        done = super().check_consumption_status(partition_id, task_names)
        return done and partition_id not in self._ghosts


@put_samples_mutant("PUT-16", evidence="never put, or cleared", may_fail="PUT-15 PUT-23")
def PutRollbackClearsOldRows(put: MethodCall) -> KVBatchMeta:
    """Clears all ids of a failed put, also rows that existed before it."""
    try:
        return put()
    except (TypeError, ValueError):
        if isinstance(put.partition_id, str) and isinstance(put.sample_ids, list):
            known = [i for i in put.sample_ids if isinstance(i, str)]
            put.plane.clear_samples(known, put.partition_id)
        raise


@put_samples_mutant("PUT-16", evidence="not to be readable")
def PutDuplicateIdStoresPart(put: MethodCall) -> KVBatchMeta:
    """Rejects a put with a duplicate id, but stores all of its rows except the last."""
    ids = put.sample_ids
    if isinstance(ids, list) and len(set(map(str, ids))) < len(ids):
        part = None if put.fields is None else put.fields[: len(ids) - 1]
        put(sample_ids=ids[:-1], fields=part, tags=put.tags and put.tags[: len(ids) - 1])
    return put()


@put_mutant("PUT-16", evidence="tags as before the failed put")
def PutFailedStampsTags(put: MethodCall) -> None:
    """Stores tags of known rows before it stores the columns, so a failed put changes tags."""
    if put.tags and len(known_rows(put)) == len(put.sample_ids):
        put(fields=None)
    put()


@put_samples_mutant("PUT-17", evidence="tags put before the fields", may_fail="CLEAR-04")
def PutFirstFieldsDropTags(put: MethodCall) -> KVBatchMeta:
    """Drops the tags of a row when a put adds its first fields."""
    if names_of(put.fields) and put.tags is None:
        rows = partition_of(put)._rows
        if all(i in rows and not rows[i].fields for i in put.sample_ids):
            put.plane.clear_samples(put.sample_ids, put.partition_id)
    return put()


@put_samples_mutant("PUT-19", evidence="an id twice in one put")
def PutDuplicateIdKeepsLast(put: MethodCall) -> KVBatchMeta:
    """Accepts duplicate ids in one put and keeps only the last row."""
    last = {sample_id: n for n, sample_id in enumerate(put.sample_ids)}
    rows = len(put.sample_ids)
    fits = isinstance(put.fields, TensorDict) and put.fields.batch_size == (rows,)
    if len(last) == rows or not fits:
        return put()
    picked = None if put.tags is None else [put.tags[n] for n in last.values()]
    return put(sample_ids=list(last), fields=put.fields[list(last.values())], tags=picked)


@put_samples_mutant("PUT-16", evidence="not to be readable")
def PutInPagesOfThousand(put: MethodCall) -> KVBatchMeta:
    """Writes a put in pages of 1,024 rows, and keeps earlier pages if a later page fails."""
    ids, size = put.sample_ids, 1024
    if put.fields is None or len(ids) <= size or put.fields.batch_size[0] != len(ids):
        return put()
    for start in range(0, len(ids), size):
        page = {name: _rows(put.fields.get(name), start, size) for name in names_of(put.fields)}
        part = slice(start, start + size)
        put(
            sample_ids=ids[part],
            fields=TensorDict(page, [len(ids[part])]),
            tags=None if put.tags is None else put.tags[part],
        )
    return KVBatchMeta(put.partition_id, None, list(ids), sorted(map(str, put.fields.keys())))


@put_samples_mutant("PUT-16", evidence="'x' of 'r0' not to be readable")
def PutTensorsBeforeObjects(put: MethodCall) -> KVBatchMeta:
    """Stores the tensors of more than 256 rows first, and keeps them if an object can't be sent."""
    names = names_of(put.fields)
    objects = [name for name in names if is_object_column(put.fields.get(name))]
    if not 0 < len(objects) < len(names) or len(put.sample_ids) <= 256:
        return put()
    with put.plane._engine._locked():  # no reader sees the tensors alone
        put(fields=put.fields.exclude(*objects))
        return put()


def _rows(leaf: Any, start: int, size: int) -> Any:
    """Return ``size`` rows of a column, from row ``start`` on."""
    if is_object_column(leaf):
        return object_array(object_rows(leaf, leaf.batch_size[0])[start : start + size])
    return stack_or_nest(rows_of(leaf)[start : start + size])


@put_mutant("PUT-23", evidence="tags as before the refused put", may_fail="PUT-16")
def PutTagsStoredBeforeDtypeCheck(put: MethodCall) -> None:
    """Stores the tags of existing rows before it checks the dtypes of the columns."""
    try:
        put()
    except ValueError:
        for row in known_rows(put):
            stamp = dict(zip(put.sample_ids, put.tags or [], strict=False)).get(row.sample_id, {})
            row.tags = {**row.tags, **stamp}
        raise


@put_mutant("PUT-16", evidence="tags put before a put that failed", may_fail="PUT-17 TAG-02")
def UndonePutDropsStampedRows(put: MethodCall) -> None:
    """Undoes a put that fails by deleting its rows without fields, those stamped before too."""
    try:
        put()
    except (TypeError, ValueError):
        bare = [row.sample_id for row in known_rows(put) if not row.fields]
        put.plane.clear(put.partition_id, bare)
        raise


@put_mutant("PUT-23", evidence="tags as before the refused put", may_fail="PUT-16")
def NewColumnsCommitTags(put: MethodCall) -> None:
    """Keeps the tags of a put that is refused, if it brought a field that no row has.

    To add a column to a table commits what was written before.
    """
    known = {name for row in partition_of(put)._rows.values() for name in row.fields}
    try:
        put()
    except ValueError:
        if known and names_of(put.fields) - known:
            tags = dict(zip(put.sample_ids, put.tags or [], strict=False))
            for row in known_rows(put):
                row.tags = {**row.tags, **tags.get(row.sample_id, {})}
        raise
