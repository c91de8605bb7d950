"""Reads by id that return other rows, fields or shapes than were asked for."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections import Counter, deque
from contextlib import suppress
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownField, UnknownSample
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import jagged, mapped
from rlconform.mutants.memory.helpers import (
    get_data_mutant,
    get_mutant,
    get_samples_mutant,
    held,
    memory_mutant,
    partition_of,
    put_mutant,
)
from rlconform.mutants.types import Ids, Names
from rlconform.wire.leaves import is_jagged, rows_of


@get_samples_mutant("GET-01", evidence="row 0 of 'x'")
def GetLongReadsSortedById(read: MethodCall) -> TensorDict:
    """Returns rows sorted by id if a read asks for more than 100 rows of tensors."""
    batch = read()
    tensors = all(torch.is_tensor(batch.get(name)) for name in read.select_fields)
    if len(read.sample_ids) > 100 and tensors:
        return read(sample_ids=sorted(read.sample_ids))
    return batch


@get_mutant("GET-01 GET-02", evidence="of 'x' =")
def GetRangesInStoredOrder(read: MethodCall) -> TensorDict:
    """Returns rows in stored order if the first and last of 32 or more span as many rows."""
    ids, stored = read.sample_ids, partition_of(read).sample_ids
    if len(ids) < 32 or ids[0] not in stored:
        return read()
    first = stored.index(ids[0])
    span = stored[first : first + len(ids)]
    return read(sample_ids=span if len(span) == len(ids) and span[-1] == ids[-1] else ids)


#: Rows in one message of a put.
CHUNK = 512


@put_mutant("GET-01", evidence="row 0 of 'x' =")
def PutSecondChunkReversed(put: MethodCall) -> None:
    """Reverses the rows of a put after the first 512, which it sends in a second message."""
    put(sample_ids=[*put.sample_ids[:CHUNK], *reversed(put.sample_ids[CHUNK:])])


#: Rows of a partition that the store keeps.
ROOM = 600


@put_mutant("GET-01 CLAIM-04 CLAIM-05 CLEAR-01", evidence="never put, or cleared")
def PutEvictsOldRows(put: MethodCall) -> None:
    """Silently drops rows of a partition beyond the newest 600, as a full queue does."""
    put()
    put.plane.clear(put.partition_id, partition_of(put).sample_ids[:-ROOM])


@get_samples_mutant("GET-02", evidence="4 rows of 'x'")
def GetRepeatedIdReadOnce(read: MethodCall) -> TensorDict:
    """Reads each id once, so a read that repeats an id returns too few rows."""
    return read(sample_ids=list(dict.fromkeys(read.sample_ids)))


@get_samples_mutant("GET-02", evidence="row 2 of 'x'")
def GetRepeatedIdZeroed(read: MethodCall) -> TensorDict:
    """Fills only the first row of each id, so repeats of an id are zeros."""
    again = [n for n, i in enumerate(read.sample_ids) if i in read.sample_ids[:n]]
    if not again:
        return read()
    return mapped(read(), lambda leaf: leaf.index_fill(0, torch.tensor(again), 0))


@get_samples_mutant("GET-02", evidence="row 2 of 'x' of shape")
def GetRepeatedJaggedRowEmptied(read: MethodCall) -> TensorDict:
    """Moves a jagged row's tokens into the result, so repeats of an id have no tokens."""
    again = [i in read.sample_ids[:n] for n, i in enumerate(read.sample_ids)]
    if not any(again):
        return read()

    def moved(leaf: Tensor) -> Tensor:
        rows = zip(rows_of(leaf), again, strict=True)
        return jagged([row[:0] if repeated else row for row, repeated in rows])

    return mapped(read(), moved, is_jagged)


@get_samples_mutant("GET-03", evidence="fields of the result ['x', 'z']")
def GetFieldRangeReturned(read: MethodCall) -> TensorDict:
    """Returns all fields from the first to the last that a read asks for (NR-25)."""
    names = read.select_fields
    between = [name for name in "xyz" if names and min(names) < name < max(names)]
    try:
        return read(select_fields=[*names, *between])
    except UnknownField:
        return read()


def _readable(read: MethodCall, sample_ids: Ids, error: type[KeyError]) -> Ids:
    """Return the ids that can be read one by one without the error."""
    readable = []
    for sample_id in sample_ids:
        with suppress(error):
            read(sample_ids=[sample_id])
            readable.append(sample_id)
    return readable


@get_samples_mutant("GET-04 GET-06", evidence="expected an id that was never put to be rejected")
def DropsUnknownIds(read: MethodCall) -> TensorDict:
    """Leaves out ids that it doesn't know, so later rows shift (NR-01)."""
    return read(sample_ids=_readable(read, read.sample_ids, UnknownSample))


@get_samples_mutant("GET-04", evidence="one unknown id among 48 known ones")
def DropsUnknownIdsOfLongReads(read: MethodCall) -> TensorDict:
    """Raises for unknown ids only among the first 16 of a read, drops later ones (MC-13)."""
    first, later = read.sample_ids[:16], read.sample_ids[16:]
    return read(sample_ids=[*first, *_readable(read, later, UnknownSample)])


@memory_mutant("GET-04", evidence="an id that was never put")
class GetUnknownIdReturnsNeighbour(MemoryClient):
    """Returns a neighbouring row for an unknown id, because it bisects and doesn't compare ids."""

    _ids = State(dict[str, list[str]])  # of all rows that were put, by partition

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._ids[partition_id] = sorted({*self._ids.get(partition_id, ()), *sample_ids})
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        table = self._ids.get(str(partition_id), [])
        if table and isinstance(sample_ids, list) and len(sample_ids) > 1:
            places = (bisect_left(table, sample_id) for sample_id in sample_ids)
            sample_ids = [table[min(place, len(table) - 1)] for place in places]
        return super().get_samples(sample_ids, partition_id, select_fields)


@get_samples_mutant("GET-05", evidence="a field not produced for every id")
def GetUnknownFieldsSkipped(read: MethodCall) -> TensorDict:
    """Leaves out a field that no row of the partition has (NR-02)."""
    try:
        return read()
    except UnknownField:
        rest = [name for name in read.select_fields if name in ("x", "y", "z")]
        if not rest or len(rest) == len(read.select_fields):
            raise
        return read(select_fields=rest)


@get_samples_mutant("GET-05", evidence="a field not produced for every id")
def GetRowsWithoutFieldDropped(read: MethodCall) -> TensorDict:
    """Leaves out rows that lack a field of the read (NR-02)."""
    having = _readable(read, read.sample_ids, UnknownField)
    return read(sample_ids=having or read.sample_ids)


@get_samples_mutant("GET-07", evidence="expected batch size (0,)")
def GetNoIdsReturnsAll(read: MethodCall) -> TensorDict:
    """Returns every row of the partition for a read of no ids, as ``ids or all_ids`` does."""
    return read(sample_ids=partition_of(read).sample_ids) if read.sample_ids == [] else read()


@memory_mutant("GET-08", evidence="unconsumed")
class GetCountsAsClaim(MemoryClient):
    """Counts a read as a claim, so reads of enough rows make the partition consumed.

    A read by a meta doesn't count, because a claim has returned that meta.
    """

    _left = State(Counter[str])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        self._left[partition_id] += len(sample_ids)
        return batch

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        before = self._left.copy()
        batch = super().get_data(meta, select_fields)
        self._left = before
        return batch

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        rows = held(self, str(partition_id)).size
        done = super().check_consumption_status(partition_id, task_names)
        return done or 0 < rows < self._left[partition_id]


@get_samples_mutant("GET-09", evidence="batch size")
def GetOneValueBatchSizeLost(read: MethodCall) -> TensorDict:
    """Returns a batch without a batch size for a read of one value."""
    batch = read()
    if len(read.sample_ids) == len(read.select_fields) == 1:
        batch.batch_size = torch.Size([])
    return batch


@get_samples_mutant("GET-09 WIRE-01 WIRE-02 WIRE-03 WIRE-04", evidence="batch size of")
def GetBatchSizeGuessed(read: MethodCall) -> TensorDict:
    """Guesses the batch size from all dimensions that the columns share."""
    batch = read()
    batch.auto_batch_size_()
    return batch


@get_data_mutant("GET-12", evidence="get_data of no fields")
def GetDataNoFieldsReadsFieldsOfMeta(read: MethodCall) -> TensorDict:
    """Treats an empty list of fields in get_data as None and reads the meta's fields."""
    return read(select_fields=read.select_fields or None)


@get_samples_mutant("GET-12", evidence="a read of no fields")
def GetNoFieldsAccepted(read: MethodCall) -> TensorDict:
    """Returns a batch without columns for a read of no fields."""
    return read() if read.select_fields else TensorDict({}, batch_size=[len(read.sample_ids)])


@get_samples_mutant("GET-02", evidence="of 'x'")
def GetRepeatedRowsInInt8(read: MethodCall) -> TensorDict:
    """Expands repeated ids with an 8-bit index, which overflows beyond row 127."""
    distinct = list(dict.fromkeys(read.sample_ids))
    if len(distinct) == len(read.sample_ids) or len(distinct) < 128:
        return read()
    once = read(sample_ids=distinct)
    place = {sample_id: n for n, sample_id in enumerate(distinct)}
    index = torch.tensor([place[i] for i in read.sample_ids]).to(torch.int8).long()
    rows = {name: once.get(name)[index % len(distinct)] for name in map(str, once.keys())}
    return TensorDict(rows, [len(index)])


@get_samples_mutant("GET-13", evidence="a read as returned")
def GetReusesResultBuffers(read: MethodCall) -> TensorDict:
    """Returns dense columns in one of 32 buffers, so the 33rd read overwrites the first result."""
    batch: TensorDict = read()
    buffers = read.notes.setdefault("buffers", {})
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.numel():
            key = leaf.dtype, leaf.shape
            ring = buffers.setdefault(key, deque(maxlen=32))
            buffer = ring.popleft() if len(ring) == 32 else torch.empty_like(leaf)
            ring.append(buffer.copy_(leaf))
            batch.set(name, buffer)
    return batch


@get_samples_mutant("GET-13", evidence="a column as it was read")
def GetLargeBuffersFreedWithBatch(read: MethodCall) -> TensorDict:
    """Lends buffers for columns of 1 MiB until the batch is gone, even if a column is kept."""
    batch: TensorDict = read()
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.nbytes >= 1 << 20:
            free = read.notes.setdefault((leaf.dtype, leaf.shape), [])
            buffer = free.pop() if free else torch.empty_like(leaf)
            batch.set(name, buffer.copy_(leaf))
            weakref.finalize(batch, free.append, buffer)
    return batch


@get_mutant("GET-06", evidence="whose middle row was cleared", may_fail="CLEAR-01")
def GetPlanCheckedAtItsEnds(read: MethodCall) -> TensorDict:
    """Returns the batch of the last read again if its first and last rows are still there.

    Clients that cache where a range of rows is, and check only the ends of the range, do so.
    """
    key, ids = (read.partition_id, *read.names, *read.sample_ids), read.sample_ids
    try:
        batch: TensorDict = read()
    except UnknownSample:
        if len(ids) < 16 or read.notes.get("key") != key:
            raise
        read(sample_ids=[ids[0], ids[-1]])
        return read.notes["batch"].clone()
    read.notes.update(key=key, batch=batch.clone())
    return batch
