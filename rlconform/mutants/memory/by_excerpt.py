"""Defects that know a thing by less than all of it: by samples, a text, a count or a place."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.columns.gather import gather
from rlconform.backends.columns.selection import RowSelection, Shared
from rlconform.backends.index import CompactedBlock
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense, mapped, with_objects
from rlconform.mutants.memory.helpers import (
    engine_mutant,
    get_mutant,
    put_mutant,
    rows_in,
)
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags

#: Bytes of a row from which it is hashed by samples, and of a sample.
_LARGE, _SAMPLE = 128 << 10, 16 << 10


@put_mutant("PUT-01", evidence="at element", may_fail="PUT-04 PUT-05 PUT-07 PUT-13 PUT-27")
def LargeRowsKnownBySamples(put: MethodCall) -> None:
    """Stores rows of a put once if their beginnings, middles and ends are equal."""

    def deduplicated(column: Tensor) -> Tensor:
        if not is_dense(column) or column[:1].nbytes < _LARGE:
            return column
        known: dict[bytes, Tensor] = {}
        return torch.stack([known.setdefault(_sampled(row), row) for row in column])

    put(fields=mapped(put.fields, deduplicated))


def _sampled(row: Tensor) -> bytes:
    data = row.contiguous().reshape(-1).view(torch.uint8)
    middle = len(data) // 2
    parts = data[:_SAMPLE], data[middle : middle + _SAMPLE], data[-_SAMPLE:]
    return b"".join(part.numpy().tobytes() for part in parts)


@put_mutant("PUT-28", evidence="'log'", may_fail="PUT-21 PUT-27")
def ObjectsKnownByTheirText(put: MethodCall) -> None:
    """Stores objects of a put once if their texts are equal, which leave out long arrays."""

    def deduplicated(rows: list[Any]) -> list[Any]:
        known: dict[str, Any] = {}
        return [known.setdefault(repr(row), row) for row in rows]

    put(fields=with_objects(put.fields, deduplicated))


@put_mutant("PUT-23", evidence="torch.", may_fail="PUT-16 PUT-13 REG-02")
def ColumnRetypedByItsOtherHalf(put: MethodCall) -> None:
    """Casts a column to the dtype of a put of as many known rows as have the column."""
    batch, known = put.fields, rows_in(put.plane._plane.index, put.partition_id, put.sample_ids)
    if isinstance(batch, TensorDict) and len(known) == len(put.sample_ids):
        for name in map(str, list(batch.keys())):
            _retype(put, name, batch.get(name))
    put()


def _retype(put: MethodCall, name: str, new: Any) -> None:
    """Cast the rows that have the field, if they are no more than those of the put."""
    rows = rows_in(put.plane._plane.index, put.partition_id, None)
    holders = [row.sample_id for row in rows if name in row.fields]
    if not holders or not is_dense(new) or len(holders) > len(put.sample_ids):
        return
    old = put.plane.get(put.partition_id, holders, [name]).get(name)
    if is_dense(old) and old.dtype != new.dtype and not set(holders) & set(put.sample_ids):
        cast = TensorDict({name: old.to(new.dtype)}, [len(holders)])
        put(sample_ids=holders, fields=cast, tags=None)


@engine_mutant("REG-03", evidence="'first'", may_fail="TAG-05 CLEAR-04", interplay=False)
class TagTablesNumberedInByte(MemoryEngine):
    """Keeps tags by a number of the partition's table, a byte that each clear of all increases."""

    _cleared = State(Counter[str])
    _tags = State(dict[tuple[str, int, str], dict[str, Any]])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        number = self._cleared[partition_id] % 256
        for sample_id, stamped in zip(ids, tags or [{} for _ in ids], strict=True):
            kept = self._tags.setdefault((partition_id, number, sample_id), {})
            kept |= stamped
            for row in rows_in(self._plane.index, partition_id, [sample_id]):
                row.tags = dict(kept)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        if sample_ids is None:
            self._cleared[partition_id] += 1
        for sample_id in sample_ids or ():
            self._tags.pop((partition_id, self._cleared[partition_id] % 256, sample_id), None)


@get_mutant("GET-13", evidence="of shape", may_fail="PUT-29 PUT-09")
def OffsetsSharedByReads(get: MethodCall) -> TensorDict:
    """Returns one tensor of offsets with all jagged columns whose rows have the same lengths."""
    batch: TensorDict = get()
    for name in get.names:
        leaf: Any = batch.get(name)
        if getattr(leaf, "is_nested", False):
            lengths = leaf.offsets().diff()
            offsets = get.notes.setdefault(tuple(lengths.tolist()), leaf.offsets())
            shared = torch.nested.nested_tensor_from_jagged(leaf.values(), offsets)
            batch.set(name, shared)
    return batch


@engine_mutant("CLEAR-01", evidence="of shape", may_fail="PUT-06 CLEAR-04")
class MovedRowsFoundByStart(MemoryEngine):
    """Finds the rows of a put that it compacts by where they start, empty ones too."""

    def _compact(self, due: list[int]) -> None:
        while due:
            number = due.pop()
            with self._plane.changed:
                columns, live = self._plane.index.survivors(number)
            fresh = {names: _moved(columns, names, rows) for names, rows in live.items()}
            parts = [
                CompactedBlock(live[names], extents_of(new), new) for names, new in fresh.items()
            ]
            with self._plane.changed:
                due += self._plane.index.move(number, parts) if parts else []


def _moved(columns: ColumnBlock, names: frozenset[str], rows: Any) -> ColumnBlock:
    moved = {}
    for name in sorted(names):
        offsets, sources = columns[name].offsets, list(rows)
        if offsets is not None:
            at = {int(offsets[row]): row for row in sorted(rows)}
            sources = [at[int(offsets[row])] for row in rows]
        places = np.array(sources, np.int64), np.arange(len(sources))
        selection = [RowSelection(columns, names, *places)]
        moved[name] = gather(selection, name, len(sources), Shared(chunked=False))
    return moved
