"""Puts that change what is stored beside them, under an alike name, or in another layout."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.memory.helpers import engine_mutant, find_rows
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire import is_object_column, object_column, object_rows


def _stem(name: str) -> str:
    """Return the name of the field's file."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


@engine_mutant("PUT-11", evidence="row")
class FieldFilesShareAName(MemoryEngine):
    """Stores a field in a file named by it, with an underscore for each odd character.

    What is put last is read under all names of the file.
    """

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        if not isinstance(fields, TensorDict):
            return
        last = {_stem(name): name for name in map(str, fields.keys())}
        rows = find_rows(self, partition_id, ids)
        known = set[str]().union(*(row.fields for row in rows)) - set(last.values())
        for other in known:
            name = last.get(_stem(other))
            if name is not None and len(rows) == len(ids):
                column = TensorDict({other: fields.get(name)}, batch_size=fields.batch_size)
                super().put(partition_id, ids, column, None)


@engine_mutant("PUT-13", evidence="row", may_fail="PUT-01 PUT-05 PUT-11 GET-01 GET-10")
class OverwrittenMaskClipsItsNeighbour(MemoryEngine):
    """Packs jagged bools eight to a byte, and zeroes a row up to the end of its last byte."""

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        rows = {row.sample_id: row for row in find_rows(self, partition_id, ids)}
        old = []
        for name, leaf in fields.items() if isinstance(fields, TensorDict) else ():
            if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.jagged:
                continue
            lengths = [len(row) for row in leaf.unbind()]
            for sample_id, length in zip(ids, lengths, strict=False):
                parts = rows[sample_id].parts if sample_id in rows else []
                columns: list[tuple[Any, int]] = [
                    (block.payload[name], at) for block, at, names in parts if name in names
                ]
                old += [
                    (column, at, length) for column, at in columns if column.offsets is not None
                ]
        super().put(partition_id, ids, fields, tags)
        for column, at, length in old:
            begin, end = column.offsets[at], column.offsets[at + 1]
            if end - begin == length and column.dtype == "bool":
                column.values[end : -(-end // 8) * 8] = 0


def _stored(value: Any) -> Any:
    """Return the value with the elements of arrays as they lie in memory."""
    if type(value) in {list, tuple}:
        return type(value)(_stored(each) for each in value)
    if type(value) is dict:
        return {key: _stored(each) for key, each in value.items()}
    if type(value) is np.ndarray and value.ndim > 1 and not value.dtype.hasobject:
        raw = value.tobytes(order="A")
        return np.frombuffer(raw, value.dtype).reshape(value.shape).copy()
    return value


@engine_mutant("PUT-28", evidence="row 0 of 'log'")
class TransposedArraysInObjectsScrambled(MemoryEngine):
    """Writes arrays inside objects as they lie in memory, and reads them row by row."""

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        if isinstance(fields, TensorDict):
            leaves = dict(fields.items())
            for name, leaf in leaves.items():
                if is_object_column(leaf):
                    values = object_rows(leaf, len(ids))
                    leaves[name] = object_column([self._try(value) for value in values])
            fields = TensorDict(leaves, batch_size=fields.batch_size)
        super().put(partition_id, ids, fields, tags)

    def _try(self, value: Any) -> Any:
        try:
            return _stored(value)
        except RecursionError:
            return value  # the right engine refuses it
