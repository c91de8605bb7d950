"""Frames: the encoding of each row of a column as self-describing bytes.

    StoredColumn of N rows ── encode_column ──▶ N frames in one uint8 buffer ──▶ store
    StoredColumn of N rows ◀── decode_column ── N frames, in the order requested ◀── store

A frame is a header, padded so that the payload starts on a 16-byte boundary, and the payload:

    magic, version, sizes, put token, first dimension, payload bytes
    | partition, field, dtype, other dimensions | sample id | padding | payload

Frames keep the store from changing values: TransferQueue 0.1.11 returns uniform rows as nested
tensors and 1-D fields as (N, 1) on key-value engines, and loses zero-length rows, changes of dtype
and conjugate views there. A frame also names its row: the store reuses the indexes of rows, so a
reader may get another row's bytes, which only the header shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from mmap import mmap
from struct import Struct
from typing import NamedTuple

import numpy as np
import torch

from rlconform.backends.columns import codec
from rlconform.backends.columns.column_block import Bytes, StoredColumn, equally_long
from rlconform.backends.columns.selection import running_sum
from rlconform.contract import ForeignRow
from rlconform.wire.ragged_rows import RaggedRows as JaggedRows

_MAGIC, _VERSION = b"RLCF", 2
_PREFIX = Struct("<4sHHIIQQQ")
_ALIGNMENT = 16
_LARGE = 32 * 2**10

#: Shape of a row after its first dimension; None for rows without dimensions, such as objects.
Tail = tuple[int, ...] | None


@dataclass(frozen=True)
class FrameColumn:
    """The frames of one column."""

    sizes: list[int]  # bytes of each frame, N of them
    buffer: torch.Tensor  # (sum(sizes),) uint8, the frames in row order

    def batched(self) -> torch.Tensor:
        """Return the frames as a uint8 tensor, ``(N, size)`` or jagged ``(N, j)``, without a copy.

        Large frames are always jagged: the store then keeps, and frees, each frame separately.
        Small frames of one size form one dense tensor, which needs fewer message parts.
        """
        if len(set(self.sizes)) == 1 and self.sizes[0] <= _LARGE:
            return self.buffer.view(len(self.sizes), -1)
        return JaggedRows(self.sizes).nest(self.buffer)


def encode_column(
    partition_id: str, field: str, token: int, sample_ids: Sequence[str], column: StoredColumn
) -> FrameColumn:
    """Encode the rows as frames; ``token`` identifies the put, and a reader checks it."""
    tail, firsts, payloads = _split(column, len(sample_ids))
    names = codec.pack([partition_id, field, column.dtype, tail])
    ids = [sample_id.encode() for sample_id in sample_ids]
    header = _PREFIX.size + len(names) + max(map(len, ids))
    header = -(-header // _ALIGNMENT) * _ALIGNMENT
    heads = [
        (
            _PREFIX.pack(
                *(_MAGIC, _VERSION, len(row_id), header, len(names), token, first, len(payload))
            )
            + names
            + row_id
        ).ljust(header, b"\0")
        for row_id, first, payload in zip(ids, firsts, payloads, strict=True)
    ]
    sizes = [header + len(payload) for payload in payloads]
    frames = _memory(sum(sizes))
    if isinstance(payloads, np.ndarray):
        table = frames.reshape(len(ids), -1)
        table[:, :header] = np.frombuffer(b"".join(heads), np.uint8).reshape(len(ids), header)
        table[:, header:] = payloads
    else:
        start = 0
        for head, payload, size in zip(heads, payloads, sizes, strict=True):
            frames[start : start + header] = np.frombuffer(head, dtype=np.uint8)
            frames[start + header : start + size] = payload
            start += size
    return FrameColumn(sizes, torch.from_numpy(frames))


def decode_column(
    partition_id: str,
    field: str,
    tokens: Sequence[int],
    sample_ids: Sequence[str],
    frames: Sequence[Bytes],
) -> StoredColumn:
    """Decode N rows' frames into a column in fresh memory: dense if of one shape, else jagged.

    Raises:
        ForeignRow: A frame belongs to another row, or to another put than its token.
        ValueError: The rows differ in dtype, or in more than their first dimension.
    """
    rows = [
        _open(partition_id, field, token, sample_id, frame)
        for token, sample_id, frame in zip(tokens, sample_ids, frames, strict=True)
    ]
    dtypes = sorted({row.dtype for row in rows})
    if len(dtypes) > 1:
        raise ValueError(f"field {field!r} holds {' and '.join(dtypes)}: read these rows apart")
    tails = {row.tail for row in rows}
    if len(tails) > 1:
        raise ValueError(
            f"field {field!r}: rows differ in more than their first dimension: read them apart"
        )
    (dtype,), (tail,) = dtypes, tails
    payloads = [row.payload for row in rows]
    values = _memory(sum(map(len, payloads)))
    np.concatenate(payloads, out=values)
    if dtype == "object":
        offsets = running_sum(np.array([len(payload) for payload in payloads]))
        return StoredColumn("object", dtype, (), 1, values, offsets)
    itemsize = codec.dtype_named(dtype).itemsize
    if tail is None:
        return StoredColumn("dense", dtype, (), itemsize, values, None)
    firsts = [row.first for row in rows]
    if equally_long(firsts):
        return StoredColumn("dense", dtype, (firsts[0], *tail), itemsize, values, None)
    return StoredColumn("jagged", dtype, tail, itemsize, values, running_sum(np.array(firsts)))


def _split(column: StoredColumn, n_rows: int) -> tuple[Tail, list[int], Bytes | list[Bytes]]:
    """Return the rows' tail, first dimensions and bytes, as one table if all are equally long."""
    if column.offsets is None:
        table = column.values.reshape(n_rows, column.item_bytes)
        if not column.shape:
            return None, [0] * n_rows, table
        return column.shape[1:], [column.shape[0]] * n_rows, table
    payloads = np.split(column.values, column.offsets[1:-1] * column.item_bytes)
    if column.layout == "object":
        return None, [0] * n_rows, payloads
    return column.shape, np.diff(column.offsets).tolist(), payloads


class _Frame(NamedTuple):
    dtype: str
    tail: Tail
    first: int
    payload: Bytes


def _open(partition_id: str, field: str, token: int, sample_id: str, frame: Bytes) -> _Frame:
    """Read a frame's header and check it against the requested row."""
    expected = f"{field!r} of sample {sample_id!r} in partition {partition_id!r}"
    if len(frame) < _PREFIX.size:
        raise ForeignRow(f"the store returned {len(frame)} bytes for {expected}: not a frame")
    magic, version, id_size, header, names_size, put, first, size = _PREFIX.unpack_from(frame.data)
    if (magic, version) != (_MAGIC, _VERSION) or len(frame) != header + size:
        raise ForeignRow(f"the store returned {len(frame)} bytes for {expected}: not a frame")
    names = frame[_PREFIX.size : _PREFIX.size + names_size].tobytes()
    partition, name, dtype, tail = _unpack_names(names)
    if (partition, name) != (partition_id, field):
        raise ForeignRow(
            f"the store returned field {name!r} of partition {partition!r} for {expected}"
        )
    row_id = frame[_PREFIX.size + names_size :][:id_size].tobytes()
    if row_id != sample_id.encode():
        raise ForeignRow(f"the store returned a row of sample {row_id!r} for {expected}")
    if put != token:
        raise ForeignRow(f"the store returned another put's value for {expected}")
    return _Frame(dtype, tail, first, frame[header:])


@lru_cache(256)
def _unpack_names(names: bytes) -> tuple[str, str, str, Tail]:
    """Decode the part of a header that is the same for all rows of a column."""
    partition, field, dtype, tail = codec.unpack(names)
    return partition, field, dtype, tail


def _memory(size: int) -> Bytes:
    """Allocate bytes; a large buffer is returned to the system as soon as it is freed.

    On the heap, large buffers that the store's threads free would cause fragmentation: a process
    that puts 16 MiB at a time grew by 300 MiB.
    """
    if size < _LARGE:
        return np.empty(size, dtype=np.uint8)
    return np.frombuffer(mmap(-1, size), dtype=np.uint8)
