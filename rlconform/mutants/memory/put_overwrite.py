"""Second puts of a field that are ignored, refused, cast or misread."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.call import MethodCall, applied
from rlconform.mutants.memory.column_helpers import is_dense, jagged, mapped
from rlconform.mutants.memory.helpers import (
    MANY_CALLS,
    PrefetchesClaims,
    get_data_mutant,
    get_mutant,
    known_rows,
    memory_mutant,
    names_of,
    partition_of,
    put_mutant,
    put_samples_mutant,
)
from rlconform.mutants.types import Ids, Names
from rlconform.wire.leaves import is_jagged, jagged_parts
from rlconform.wire.object_columns import is_object_column


@get_data_mutant("PUT-13", evidence="row:", plane=PrefetchesClaims)
def GetDataReturnsRowsOfClaimTime(read: MethodCall) -> TensorDict:
    """Returns the values of the time of the claim from get_data, even after overwrites."""
    batch: TensorDict = read()
    fetched = read.plane.fetched(read.meta)
    return batch if fetched is None or read.select_fields is not None else fetched.clone()


@memory_mutant("PUT-13", evidence="the newest rows of a claim")
class GetDataMissesPutsOfSomeRows(PrefetchesClaims):
    """Reads a claim's rows ahead, and reads them again only if all were put together since."""

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._claimed.pop((partition_id, *receipt.sample_ids), None)
        return receipt

    def get_data(self, meta: KVBatchMeta, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        ahead = self._claimed.pop((meta.partition_id, *meta.sample_ids), batch)
        return ahead.select(*batch.keys()) if names_of(batch) <= names_of(ahead) else batch


@put_mutant("PUT-13", evidence="row 0 of 'x' =", timeouts=MANY_CALLS)
def PutVersionsComparedAsText(put: MethodCall) -> None:
    """Compares the numbers of puts as text of three digits, so put 1000 is older than put 999."""
    with put.plane._locked():
        numbers, versions = put.notes.setdefault(put.partition_id, (count(1), {}))
        version = f"{next(numbers):03d}"
        rows = [row for row in known_rows(put) if versions.get(row.sample_id, "") > version]
        newer = [row.sample_id for row in rows]
        names = names_of(put.fields).intersection(*(row.fields for row in rows))
        kept = put.plane.get(put.partition_id, newer, list(names)) if newer and names else None
        put()
        versions.update(dict.fromkeys(set(put.sample_ids) - set(newer), version))
        if kept is not None:
            put(sample_ids=newer, fields=kept, tags=None)


@put_samples_mutant("PUT-13", evidence="row 0 of 'log' to be", may_fail="PUT-27")
def PutFirstObjectsKept(put: MethodCall) -> KVBatchMeta:
    """Ignores overwrites of objects: a row's first object stays."""
    names = names_of(put.fields)
    if not names or not isinstance(put.partition_id, str):
        return put()
    has = {name for row in known_rows(put) for name in row.fields}
    again = [n for n in names & has if is_object_column(put.fields.get(n))]
    receipt = put(fields=put.fields.exclude(*again))
    return replace(receipt, fields=list(map(str, put.fields.keys())))


@put_samples_mutant("PUT-13", evidence="row 0 of 'x' =")
def PutBufferSentOnce(put: MethodCall) -> KVBatchMeta:
    """Sends a tensor of 64 KiB or more once, so a buffer that is filled again keeps its old rows.

    Clients that register the memory of a tensor for a transport while the tensor lives do so.
    """
    sent = put.notes.setdefault("sent", WeakTensorKeyDictionary())

    def at_first(leaf: Tensor) -> Tensor:
        first: Tensor = sent.setdefault(leaf, leaf.detach().clone())
        return first

    return put(fields=mapped(put.fields, at_first, lambda t: is_dense(t) and t.nbytes >= 1 << 16))


def _put_as_first(put: MethodCall, as_known: Callable[[Tensor, torch.dtype], Tensor]) -> Any:
    """Put, with ``as_known`` applied to dense columns that differ in dtype from the first put."""
    fields = put.fields
    if isinstance(fields, TensorDict) and isinstance(put.partition_id, str):
        fields = fields.copy()
        for name in names_of(fields):
            leaf = fields.get(name)
            if isinstance(leaf, Tensor) and is_dense(leaf):
                known = put.notes.setdefault((put.partition_id, name), leaf.dtype)
                fields.set(name, leaf if leaf.dtype is known else as_known(leaf, known))
    return put(fields=fields)


#: Decorator of a function that converts a column to the dtype of the field's first put.
_known_dtype_mutant = applied(put_samples_mutant, _put_as_first)


@_known_dtype_mutant("PUT-13", evidence="of torch.int32")
def PutBytesReadAsFirstDtype(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """Reinterprets the bytes of a second put as the dtype of the first (TQ-03)."""
    return leaf.view(dtype) if leaf.dtype.itemsize == dtype.itemsize else leaf


@put_samples_mutant("PUT-13 CLEAR-04", evidence="no room for a larger value")
def PutLargerValueRefused(put: MethodCall) -> KVBatchMeta:
    """Refuses to overwrite a value with a larger one (MC-05)."""
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        if isinstance(leaf, Tensor) and is_dense(leaf) and len(leaf):
            size = max(leaf.nbytes // len(leaf), 1 << 16)
            for sample_id in put.sample_ids:
                if size > put.notes.setdefault((put.partition_id, sample_id, name), size):
                    raise RuntimeError("no room for a larger value")
    return put()


@put_samples_mutant("PUT-13", evidence="row:", may_fail="PUT-02 PUT-23")
def PutOneRowOverwriteIgnored(put: MethodCall) -> KVBatchMeta:
    """Ignores an overwrite of one row, which it treats as a repeated put (MC-02)."""
    rows = known_rows(put) if len(put.sample_ids) == 1 else []
    if rows and names_of(put.fields) and names_of(put.fields) <= rows[0].fields:
        return put(fields=None, tags=put.tags or [{}])
    return put()


@put_samples_mutant("PUT-23", evidence="float32")
def PutOverwritesCast(put: MethodCall) -> KVBatchMeta:
    """Casts overwrites to the dtype of the old value; it refuses another dtype only in new rows."""
    try:
        return put()
    except ValueError:
        rows = partition_of(put)._rows
        first, names = put.sample_ids[:1], names_of(put.fields)
        if not names or not first or first[0] not in rows or not names <= rows[first[0]].fields:
            raise
    known = put.plane.get_samples(first, put.partition_id, sorted(names))
    cast = {name: put.fields.get(name).to(known.get(name).dtype) for name in names}
    return put(fields=TensorDict(cast, batch_size=put.fields.batch_size))


@put_samples_mutant("PUT-23", evidence="'w' of 'second' not to be readable")
def PutRefusedPartStored(put: MethodCall) -> KVBatchMeta:
    """Refuses a put for the dtype of one column, but stores the put's other columns."""
    try:
        return put()
    except ValueError as refusal:
        if put.fields is not None and "must replace all" in str(refusal):
            good = [n for n in names_of(put.fields) if f"field {n!r}" not in str(refusal)]
            put(fields=put.fields.select(*good), tags=None)
        raise


@_known_dtype_mutant("PUT-23", evidence="of torch.float32")
def PutCastToFirstDtype(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    """Casts a one-row put to the dtype of the field's first put, as stacking the rows does."""
    wider = torch.promote_types(leaf.dtype, dtype) is not dtype
    return leaf.to(dtype) if wider and len(leaf) == 1 else leaf


@put_mutant("PUT-23", evidence="no sample 'second'")
def PutRefusalReportedAsSuccess(put: MethodCall) -> None:
    """Reports success for a put that it refused for a second dtype (TQ-03)."""
    with suppress(ValueError):
        put()


@put_samples_mutant("PUT-13", evidence="row 0 of 'x'")
def PutEqualToEarlierIgnored(put: MethodCall) -> KVBatchMeta:
    """Ignores a put that equals an earlier put, as if it were a retry, so A, B, A leaves B."""
    leaf = put.fields.get("x", None) if names_of(put.fields) == {"x"} else None
    if isinstance(leaf, Tensor) and is_dense(leaf) and put.tags is None:
        digest = put.partition_id, *put.sample_ids, repr(leaf.tolist()), leaf.dtype
        if digest in put.notes:
            return put(fields=None, tags=[{}] * len(put.sample_ids))
        put.notes[digest] = True
    return put()


@put_samples_mutant("PUT-13", evidence="of shape (6, 4)")
def PutRowShapeOfEqualSizeKept(put: MethodCall) -> KVBatchMeta:
    """Keeps one row shape for each field, dtype and size of a row, so (6, 4) becomes (4, 6).

    Stores of rows of fixed size that record the shape with the first put of that size do so.
    """
    fields = put.fields
    if isinstance(fields, TensorDict):
        fields = fields.copy()
        for name in names_of(fields):
            leaf = fields.get(name)
            if isinstance(leaf, Tensor) and is_dense(leaf) and leaf.numel():
                key = (put.partition_id, name, leaf.dtype, leaf[0].numel())
                shape = put.notes.setdefault(key, leaf.shape[1:])
                fields.set(name, leaf.reshape(len(leaf), *shape))
    return put(fields=fields)


@put_samples_mutant("PUT-13", evidence="row 0 of 'x' of shape")
def PutJaggedKeepsRowLengths(put: MethodCall) -> KVBatchMeta:
    """Keeps the row lengths of a large jagged column that is put again with as many tokens.

    Stores that overwrite a segment of equal size in place, but not the offsets beside it, do so.
    """
    fields = put.fields
    if isinstance(fields, TensorDict):
        fields = fields.copy()
        for name in names_of(fields):
            leaf = fields.get(name)
            if isinstance(leaf, Tensor) and is_jagged(leaf) and leaf.values().nbytes >= 1 << 16:
                values, rows = jagged_parts(leaf)
                key = (put.partition_id, name, leaf.dtype, rows.total, *put.sample_ids)
                kept = put.notes.setdefault(key, rows.offsets.clone())
                fields.set(name, jagged(list(values.tensor_split(kept[1:-1]))))
    return put(fields=fields)


@get_mutant("PUT-13", evidence="row 0 of 'input_lengths' =")
def GetLengthsFromTags(read: MethodCall) -> TensorDict:
    """Returns the column ``input_lengths`` from the tags of that name, even if it was put later.

    Planes that answer reads of small columns from the metadata that they hold anyway do so.
    """
    batch: TensorDict = read()
    lengths = [row.tags.get(INPUT_LENGTHS) for row in known_rows(read)]
    column = batch.get(INPUT_LENGTHS, None)
    whole = isinstance(column, Tensor) and column.dim() == 1 and not column.is_floating_point()
    if whole and len(lengths) == len(read.sample_ids) and all(type(n) is int for n in lengths):
        batch.set(INPUT_LENGTHS, column.new_tensor(lengths))
    return batch


@put_samples_mutant("PUT-23", evidence="row 1 of 'w' =")
def PutRefusedOverwritesStay(put: MethodCall) -> KVBatchMeta:
    """Undoes a put that it refuses for a dtype by deleting new values; overwritten ones stay.

    Columns are written one after the other, so those before the refused column are overwritten.
    """
    try:
        return put()
    except ValueError as refusal:
        rows = known_rows(put)
        if put.fields is not None and "must replace all" in str(refusal) and rows:
            names = list(map(str, put.fields.keys()))
            refused = next(n for n, name in enumerate(names) if f"field {name!r}" in str(refusal))
            old = [name for name in names[:refused] if all(name in row.fields for row in rows)]
            if old and len(rows) == len(put.sample_ids):
                put(fields=put.fields.select(*old), tags=None)
        raise


@memory_mutant("PUT-13", evidence="row 0 of 'x' =")
class GetDataReadsLargeClaimsAhead(PrefetchesClaims):
    """Reads the rows of a claim of 32 or more ahead, and returns them once, despite overwrites."""

    def get_data(self, meta: KVBatchMeta, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        ahead = self._claimed.pop((meta.partition_id, *meta.sample_ids), batch)
        large = len(meta.sample_ids) >= 32 and names_of(batch) <= names_of(ahead)
        return ahead.select(*batch.keys()) if large else batch
