"""Second puts that are skipped because the plane takes them for what it holds already."""

from __future__ import annotations

from dataclasses import replace

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import (
    find_rows,
    known_rows,
    names_of,
    put_samples_mutant,
)
from rlconform.wire import is_object_column, object_rows

#: Bytes at the beginning and at the end of a column that are compared.
EDGE = 4096


@put_samples_mutant("PUT-13", evidence="of 'x' =")
def PutSkippedForEqualEnds(put: MethodCall) -> KVBatchMeta:
    """Skips a column whose shape, first and last 4 KiB equal those of the last put of these rows.

    Clients that do not send a retried put again may tell it by such a fingerprint.
    """
    if not isinstance(put.fields, TensorDict):
        return put()
    rows, same = known_rows(put), []
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        if isinstance(leaf, Tensor) and is_dense(leaf) and leaf.nbytes > 2 * EDGE:
            data = leaf.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
            ends = (leaf.dtype, leaf.shape, data[:EDGE].tobytes(), data[-EDGE:].tobytes())
            key = (put.partition_id, name, *put.sample_ids)
            held = len(rows) == len(put.sample_ids) and all(name in row.fields for row in rows)
            if held and put.notes.get(key) == ends:
                same.append(name)
            put.notes[key] = ends
    receipt = put(fields=put.fields.exclude(*same))
    return replace(receipt, fields=list(map(str, put.fields.keys())))


@put_samples_mutant("PUT-13", evidence="row 1 of 'log' to be", may_fail="PUT-27")
def PutSkippedForEqualLength(put: MethodCall) -> KVBatchMeta:
    """Skips an object column whose objects are as long as text as those put last for these rows."""
    if not isinstance(put.fields, TensorDict):
        return put()
    rows, same = known_rows(put), []
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        if is_object_column(leaf):
            sizes = [len(repr(each)) for each in object_rows(leaf, len(put.sample_ids))]
            key = (put.partition_id, name, *put.sample_ids)
            held = len(rows) == len(put.sample_ids) and all(name in row.fields for row in rows)
            if held and min(sizes) >= EDGE and put.notes.get(key) == sizes:
                same.append(name)
            put.notes[key] = sizes
    receipt = put(fields=put.fields.exclude(*same))
    return replace(receipt, fields=list(map(str, put.fields.keys())))


@put_samples_mutant("PUT-13", evidence="row 0 of 'x' =")
def PutOverwritesSharedValue(put: MethodCall) -> KVBatchMeta:
    """Stores a column that is expanded along its rows as one value, and overwrites it in place.

    A put to one of the rows changes the others too.
    """
    receipt: KVBatchMeta = put()
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        if not isinstance(leaf, Tensor) or not is_dense(leaf):
            continue
        shared: dict[str, list[str]] = put.notes.setdefault((put.partition_id, name), {})
        others = {i: n for n, i in enumerate(put.sample_ids) if i in shared}
        for sample_id, n in others.items():
            rest = [i for i in shared.get(sample_id, ()) if i not in put.sample_ids]
            held = [row.sample_id for row in find_rows(put.plane._engine, put.partition_id, rest)]
            if held:
                same = TensorDict({name: leaf[[n] * len(held)].clone()}, batch_size=[len(held)])
                put(sample_ids=held, fields=same, tags=None)
        for sample_id in put.sample_ids:
            shared.pop(sample_id, None)
        if len(put.sample_ids) > 1 and leaf.stride(0) == 0:
            shared.update({key: list(put.sample_ids) for key in put.sample_ids})
    return receipt


@put_samples_mutant("PUT-13", evidence="row 0 of 'x' =")
def PutUnchangedByVersionCounterSkipped(put: MethodCall) -> KVBatchMeta:
    """Skips a column that is the tensor of its last put, by torch's count of writes to it.

    Numpy writes to memory that it shares with a tensor without being counted.
    """
    same = []
    rows = known_rows(put)
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        if not isinstance(leaf, Tensor) or leaf.is_inference():
            continue
        key, what = (put.partition_id, name), (list(put.sample_ids), leaf._version)
        last, before = put.notes.get(key, (None, None))
        stored = len(rows) == len(put.sample_ids) and all(name in row.fields for row in rows)
        if stored and last is leaf and before == what:
            same.append(name)
        put.notes[key] = leaf, what
    receipt = put(fields=put.fields.exclude(*same)) if same else put()
    return replace(receipt, fields=list(map(str, put.fields.keys()))) if same else receipt


@put_samples_mutant("PUT-13", evidence="of 'x' =")
def PutSkippedForEqualValues(put: MethodCall) -> KVBatchMeta:
    """Skips a column that ``torch.equal`` takes for the last one of these rows.

    A column of negative zeros replaces no zeros.
    """
    if not isinstance(put.fields, TensorDict):
        return put()
    rows, same = known_rows(put), []
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        if isinstance(leaf, Tensor) and is_dense(leaf):
            key = (put.partition_id, name, *put.sample_ids)
            held = len(rows) == len(put.sample_ids) and all(name in row.fields for row in rows)
            last = put.notes.get(key)
            if held and last is not None and last.dtype is leaf.dtype and torch.equal(last, leaf):
                same.append(name)
            put.notes[key] = leaf.detach().clone()
    receipt = put(fields=put.fields.exclude(*same))
    return replace(receipt, fields=list(map(str, put.fields.keys())))
