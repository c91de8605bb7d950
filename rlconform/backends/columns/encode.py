"""Conversion between a put's batch and stored columns.

    TensorDict ── pack ──▶ ColumnBlock ── (a store) ──▶ row selections ── read ──▶ TensorDict

Packed columns share memory with the contiguous leaves of a batch. A store in this process must copy
them; a store in another process receives a copy anyway.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase
from torch import Tensor

from rlconform.backends.columns import codec, objects
from rlconform.backends.columns.column_block import ColumnBlock, Integers, StoredColumn
from rlconform.backends.columns.gather import gather
from rlconform.backends.columns.selection import RowSelection, Shared
from rlconform.wire import LeafKind, classify_leaf, object_column, object_rows
from rlconform.wire.leaves import jagged_parts
from rlconform.wire.ragged_rows import RaggedRows


def pack(fields: TensorDictBase | None, n_rows: int) -> ColumnBlock:
    """Convert ``n_rows`` rows of a put to columns on the CPU, without grad; None gives no columns.

    ``TypeError`` for a leaf that is no dense or jagged tensor or object column, ``ValueError`` for
    an object column without exactly ``n_rows`` values.
    """
    if fields is None:
        return {}
    columns: ColumnBlock = {}
    known: list[Integers] = []
    for name in map(str, fields.keys()):
        with _naming(name):
            column = _pack(fields.get(name), n_rows)
        columns[name] = replace(column, offsets=_shared(column.offsets, known))
    return columns


def read(selections: Sequence[RowSelection], names: Sequence[str], n_rows: int) -> TensorDict:
    """Gather the named fields of ``n_rows`` rows from the selections into a batch in fresh memory.

    ``ValueError``, with the field's name, if the rows of a field don't fit in one tensor.
    """
    shared = Shared(chunked=len(names) > 1)
    columns = {}
    for name in names:
        with _naming(name):
            columns[name] = gather(selections, name, n_rows, shared)
    return batch_of(columns, n_rows)


def batch_of(columns: Mapping[str, StoredColumn], n_rows: int) -> TensorDict:
    """Build a batch of size ``(n_rows,)`` that shares the columns' memory.

    Jagged columns with the same offsets share them, so that torch treats them as equally ragged.
    """
    known: dict[int, RaggedRows] = {}
    leaves = {name: _leaf(column, n_rows, known) for name, column in columns.items()}
    return TensorDict(leaves, batch_size=[n_rows])


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Add the field's name to errors that the ``with`` block raises."""
    try:
        yield
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"field {name!r}: {error}") from error


def _pack(leaf: Any, n_rows: int) -> StoredColumn:
    layout = classify_leaf(leaf)
    if layout == "object":
        values, offsets = objects.encode(object_rows(leaf, n_rows))
        return StoredColumn("object", "object", (), 1, values, offsets)
    if leaf.is_meta:
        raise TypeError("a meta tensor holds no bytes")
    if layout == "jagged":
        tokens, rows = jagged_parts(leaf)
        offsets = rows.offsets.cpu().numpy()
        return _column(layout, tokens, offsets)
    return _column(layout, leaf, None)


def _shared(offsets: Integers | None, known: list[Integers]) -> Integers | None:
    """Return an equal array in ``known``, if any, so that the same offsets are sent only once."""
    if offsets is None:
        return None
    for same in known:
        if np.array_equal(same, offsets):
            return same
    known.append(offsets)
    return offsets


def _column(layout: LeafKind, items: Tensor, offsets: Any) -> StoredColumn:
    shape, itemsize = tuple(items.shape[1:]), items.element_size()
    dtype = codec.dtype_name(items.dtype)
    return StoredColumn(layout, dtype, shape, itemsize, codec.tensor_bytes(items), offsets)


def _leaf(
    column: StoredColumn, n_rows: int, known: dict[int, RaggedRows]
) -> Tensor | NonTensorStack:
    if column.layout == "object":
        return object_column(objects.decode(column.values, column.offsets))
    dtype = codec.dtype_named(column.dtype)
    # numpy gives an empty array strides that torch refuses to view as another dtype
    no_values = torch.empty(0, dtype=dtype)
    values = torch.from_numpy(column.values).view(dtype) if column.values.size else no_values
    if column.offsets is None:
        return values.view(n_rows, *column.shape)
    key = id(column.offsets)
    if key not in known:
        known[key] = RaggedRows(torch.from_numpy(np.diff(column.offsets)))
    rows = known[key]
    return rows.nest(values.view(rows.total, *column.shape))
