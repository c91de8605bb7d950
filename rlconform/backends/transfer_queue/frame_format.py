"""Frames: the encoding of each value of a column as self-describing bytes.

    leaf (N, ...) ── split_column, encode_column ──▶ N frames in one uint8 buffer ──▶ store
    leaf (N, ...) ◀────────── decode_column ──────── N frames, in the order requested ◀── store

A frame is a header, padded so that the payload starts on a 16-byte boundary, and the payload:

    magic, version, layout, sizes, put token, first dimension, payload bytes
    | partition, field, kind, other dimensions | sample id | padding | payload

Frames keep the store from changing values: TransferQueue 0.1.11 returns uniform rows as nested
tensors and 1-D fields as (N, 1) on key-value engines, and loses zero-length rows, changes of dtype
and conjugate views there. A frame also names its row: the store reuses the indexes of rows, so a
reader may get another row's bytes, which only the header shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from mmap import mmap
from struct import Struct
from typing import Any, NamedTuple

import numpy as np
import torch
from tensordict import NonTensorStack

from rlconform.backends.columns import codec
from rlconform.backends.columns.column_block import equally_long
from rlconform.contract import ForeignRow
from rlconform.wire import classify_leaf, object_column, object_rows
from rlconform.wire.leaves import jagged_parts
from rlconform.wire.ragged_rows import RaggedRows as JaggedRows

_MAGIC, _VERSION = b"RLCF", 1
_PREFIX = Struct("<4sBBHIIQQQ")
_ALIGNMENT = 16
_LARGE = 32 * 2**10

#: The kind of object rows; the kind of tensor rows is the name of their dtype.
OBJECT = "object"


class Layout(IntEnum):
    """How a column was put."""

    DENSE = 0
    JAGGED = 1
    OBJECT = 2


@dataclass(frozen=True)
class FrameRows:
    """A column split into rows.

    Attributes:
        layout: How it was put.
        kind: Dtype name, or ``OBJECT``.
        tail: Shape of a row after its first dimension; ``None`` for rows without dimensions.
        firsts: First dimension of each row, N of them; 0 where there is none.
        payloads: ``(N, bytes)`` uint8 where all rows have one size, else N arrays ``(bytes,)``.
    """

    layout: Layout
    kind: str
    tail: tuple[int, ...] | None
    firsts: list[int]
    payloads: np.ndarray | list[np.ndarray]


@dataclass(frozen=True)
class FrameColumn:
    """A column's frames.

    Attributes:
        kind: As in ``FrameRows``.
        sizes: Bytes of each frame, N of them.
        buffer: ``(sum(sizes),)`` uint8, the frames in row order.
    """

    kind: str
    sizes: list[int]
    buffer: torch.Tensor

    def batched(self) -> torch.Tensor:
        """The frames as a tensor ``(N, size)`` or jagged ``(N, j)``, uint8, sharing their memory.

        Large frames are always jagged: the store then keeps, and frees, each one separately. Small
        frames of one size form one dense tensor, which needs fewer message parts.
        """
        if len(set(self.sizes)) == 1 and self.sizes[0] <= _LARGE:
            return self.buffer.view(len(self.sizes), -1)
        return JaggedRows(self.sizes).nest(self.buffer)


def split_column(name: str, leaf: Any, n_rows: int) -> FrameRows:
    """Split a column into rows; shares the leaf's memory if it is contiguous and on the CPU.

    Raises:
        TypeError: The leaf is neither a dense tensor, nor a jagged one, nor an object column of
            plain data.
        ValueError: It doesn't have ``n_rows`` rows.
    """
    layout = Layout[classify_leaf(leaf).upper()]
    if layout is Layout.OBJECT:
        return _split_objects(name, object_rows(leaf, n_rows))
    if leaf.is_meta:
        raise TypeError(f"field {name!r}: a meta tensor holds no bytes")
    rows = leaf.size(0) if leaf.dim() else 0
    if rows != n_rows:
        raise ValueError(f"field {name!r} has {rows} rows for {n_rows} sample_ids")
    if layout is Layout.JAGGED:
        return _split_jagged(leaf)
    shape = tuple(leaf.shape[1:])
    return FrameRows(
        layout=Layout.DENSE,
        kind=codec.dtype_name(leaf.dtype),
        tail=shape[1:] if shape else None,
        firsts=[shape[0] if shape else 0] * n_rows,
        payloads=_table(codec.tensor_bytes(leaf), n_rows),
    )


def encode_column(
    partition_id: str, field: str, token: int, sample_ids: Sequence[str], rows: FrameRows
) -> FrameColumn:
    """Encode the rows as frames; ``token`` identifies the put, and a reader checks it."""
    tail = None if rows.tail is None else list(rows.tail)
    names = codec.pack([partition_id, field, rows.kind, tail])
    ids = [sample_id.encode() for sample_id in sample_ids]
    header = _padded(_PREFIX.size + len(names) + max(map(len, ids)))
    heads = [
        (
            _PREFIX.pack(
                *(_MAGIC, _VERSION, rows.layout, len(row_id), header, len(names)),
                *(token, first, len(payload)),
            )
            + names
            + row_id
        ).ljust(header, b"\0")
        for row_id, first, payload in zip(ids, rows.firsts, rows.payloads, strict=True)
    ]
    sizes = [header + len(payload) for payload in rows.payloads]
    frames = _memory(sum(sizes))
    if isinstance(rows.payloads, np.ndarray):
        table = frames.reshape(len(ids), -1)
        table[:, :header] = _table(np.frombuffer(b"".join(heads), dtype=np.uint8), len(ids))
        table[:, header:] = rows.payloads
    else:
        start = 0
        for head, payload, size in zip(heads, rows.payloads, sizes, strict=True):
            frames[start : start + header] = np.frombuffer(head, dtype=np.uint8)
            frames[start + header : start + size] = payload
            start += size
    return FrameColumn(rows.kind, sizes, torch.from_numpy(frames))


class _Frame(NamedTuple):
    layout: Layout
    kind: str
    tail: tuple[int, ...] | None
    first: int
    payload: np.ndarray


def decode_column(
    partition_id: str,
    field: str,
    tokens: Sequence[int],
    sample_ids: Sequence[str],
    frames: Sequence[np.ndarray],
) -> torch.Tensor | NonTensorStack:
    """Decode the frames of N rows into one leaf in fresh memory.

    Raises:
        ForeignRow: A frame was not written for its row by the put of its token.
        ValueError: The rows don't fit in one column: they differ in kind, or in more than their
            first dimension.
    """
    names: dict[bytes, tuple[str, tuple[int, ...] | None]] = {}
    rows = [
        _open(names, partition_id, field, token, sample_id, frame)
        for token, sample_id, frame in zip(tokens, sample_ids, frames, strict=True)
    ]
    kinds = sorted({row.kind for row in rows})
    if len(kinds) > 1:
        raise ValueError(f"field {field!r} holds {' and '.join(kinds)}: read these rows apart")
    if kinds == [OBJECT]:
        return _join_objects([row.payload for row in rows])
    return _join_tensors(field, codec.dtype_named(kinds[0]), rows)


def _open(
    names: dict[bytes, tuple[str, tuple[int, ...] | None]],
    partition_id: str,
    field: str,
    token: int,
    sample_id: str,
    frame: np.ndarray,
) -> _Frame:
    """Read a frame's header and check it against the requested row.

    ``names`` caches the part of the header that the rows of a column have in common.
    """
    expected = f"{field!r} of sample {sample_id!r} in partition {partition_id!r}"
    if len(frame) < _PREFIX.size:
        raise ForeignRow(f"the store returned {len(frame)} bytes for {expected}: not a frame")
    magic, version, layout, id_size, header, names_size, put, first, size = _PREFIX.unpack_from(
        frame.data
    )
    if (magic, version) != (_MAGIC, _VERSION) or len(frame) != header + size:
        raise ForeignRow(f"the store returned {len(frame)} bytes for {expected}: not a frame")
    common = frame[_PREFIX.size : _PREFIX.size + names_size].tobytes()
    if common not in names:
        names[common] = _open_names(common, partition_id, field, expected)
    row_id = frame[_PREFIX.size + names_size :][:id_size].tobytes()
    if row_id != sample_id.encode():
        raise ForeignRow(f"the store returned a row of sample {row_id!r} for {expected}")
    if put != token:
        raise ForeignRow(f"the store returned another put's value for {expected}")
    kind, tail = names[common]
    return _Frame(Layout(layout), kind, tail, first, frame[header:])


def _open_names(
    common: bytes, partition_id: str, field: str, expected: str
) -> tuple[str, tuple[int, ...] | None]:
    partition, name, kind, tail = codec.unpack(common)
    if (partition, name) != (partition_id, field):
        raise ForeignRow(
            f"the store returned field {name!r} of partition {partition!r} for {expected}"
        )
    return kind, None if tail is None else tuple(tail)


def _join_tensors(field: str, dtype: torch.dtype, rows: Sequence[_Frame]) -> torch.Tensor:
    """Dense if the rows have one shape, however they were put; else jagged."""
    tails = {row.tail for row in rows}
    if len(tails) > 1:
        raise ValueError(
            f"field {field!r}: rows differ in more than their first dimension: read them apart"
        )
    tail = tails.pop()
    if tail is None:
        return _filled((len(rows),), dtype, rows)
    firsts = [row.first for row in rows]
    if equally_long(firsts):
        return _filled((len(rows), firsts[0], *tail), dtype, rows)
    # ``nest`` sets the length of the longest row: without it torch pads to all tokens.
    return JaggedRows(firsts).nest(_filled((sum(firsts), *tail), dtype, rows))


def _filled(shape: tuple[int, ...], dtype: torch.dtype, rows: Sequence[_Frame]) -> torch.Tensor:
    """Concatenate the rows' payloads into a tensor."""
    size = sum(len(row.payload) for row in rows)
    if not size:
        return torch.empty(shape, dtype=dtype)
    memory = _memory(size)
    np.concatenate([row.payload for row in rows], out=memory)
    return torch.from_numpy(memory).view(dtype).view(shape)


def _join_objects(payloads: Sequence[np.ndarray]) -> NonTensorStack:
    """An object column that slices with its batch, unlike a single array."""
    return object_column(codec.unpack(payload.data) for payload in payloads)


def _split_jagged(leaf: torch.Tensor) -> FrameRows:
    values, rows = jagged_parts(leaf)
    firsts: list[int] = rows.lengths.tolist()
    step = values[:1].numel() * values.element_size()  # bytes along the first dimension
    payloads = np.split(codec.tensor_bytes(values), np.cumsum(firsts[:-1]) * step)
    return FrameRows(
        Layout.JAGGED, codec.dtype_name(leaf.dtype), tuple(values.shape[1:]), firsts, payloads
    )


def _split_objects(name: str, values: Sequence[Any]) -> FrameRows:
    try:
        payloads = [np.frombuffer(codec.pack(value), dtype=np.uint8) for value in values]
    except TypeError as error:
        raise TypeError(f"field {name!r}: {error}") from error
    return FrameRows(Layout.OBJECT, OBJECT, None, [0] * len(values), payloads)


def _memory(size: int) -> np.ndarray:
    """Allocate bytes; a large buffer returns to the system as soon as it is freed.

    On the heap, large buffers that the store's threads free cause fragmentation: a process that
    puts 16 MiB at a time grew by 300 MiB.
    """
    if size < _LARGE:
        return np.empty(size, dtype=np.uint8)
    return np.frombuffer(mmap(-1, size), dtype=np.uint8)


def _table(data: np.ndarray, n_rows: int) -> np.ndarray:
    """Reshape ``(N * bytes,)`` to ``(N, bytes)``, also for no rows or no bytes."""
    return data.reshape(n_rows, len(data) // n_rows if n_rows else 0)


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
