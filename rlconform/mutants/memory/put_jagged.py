"""Jagged columns that have wrong rows or lengths, or that torch can't pad or pickle."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns.selection import running_sum
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import (
    from_offsets,
    is_dense,
    jagged,
    jagged_in,
    mapped,
    put_jagged_mutant,
    read_column_mutant,
    read_jagged_mutant,
)
from rlconform.mutants.memory.helpers import call_mutant, get_data_mutant, put_samples_mutant
from rlconform.wire.leaves import is_jagged, jagged_parts, rows_of
from rlconform.wire.ragged_rows import RaggedRows


@put_jagged_mutant("PUT-05", evidence="of 'x' =")
def GetEvenBfloat16RowsAsFloat32(leaf: Tensor) -> Tensor:
    """Converts jagged bfloat16 rows of equal length to float32 and back, which changes NaNs."""
    if leaf.dim() > 2 or leaf.dtype is not torch.bfloat16:
        return leaf
    rows = rows_of(leaf)
    even = len(rows) > 1 and len({row.shape for row in rows}) == 1
    return torch.stack(rows).float().bfloat16() if even else leaf


@read_jagged_mutant("PUT-05 WIRE-01", evidence="of shape")
def PutTrailingZerosDropped(leaf: Tensor) -> Tensor:
    """Drops zeros at the end of jagged rows, because it stores rows padded with zeros."""
    if leaf.dim() > 2 or leaf.dtype is not torch.int64:
        return leaf
    return jagged([row[: int(row.nonzero()[-1:].sum()) + 1] for row in rows_of(leaf)])


@put_jagged_mutant("PUT-05", evidence="of shape (70000,)", may_fail="PUT-09 PUT-13")
def PutLengthsInTwoBytes(leaf: Tensor) -> Tensor:
    """Stores row lengths in 16 bits, so a row of 65,536 tokens is read as empty."""
    return jagged([row[: len(row) % 2**16] for row in rows_of(leaf)])


@put_jagged_mutant("PUT-07", evidence="got (0, 0)")
def PutLengthsFromBytes(leaf: Tensor) -> Tensor:
    """Divides a row's bytes by those of a token: rows of tokens without bytes have no tokens."""
    values, _ = jagged_parts(leaf)
    return leaf if values.shape[1:].numel() else jagged([row[:0] for row in rows_of(leaf)])


#: Rows of a page.
PAGE = 1024


@read_jagged_mutant("PUT-05", evidence="of shape (1,)", may_fail="GET-01")
def GetPagesPaddedToOneWidth(leaf: Tensor) -> Tensor:
    """Reads pages of 1,024 rows, and pads those whose rows have one length to the widest page."""
    rows = rows_of(leaf)
    pages = [{len(row) for row in rows[at : at + PAGE]} for at in range(0, len(rows), PAGE)]
    if len(pages) == 1 or any(len(page) > 1 for page in pages):
        return leaf
    width = max(len(row) for row in rows)
    return torch.stack(
        [torch.cat([row, row.new_zeros(width - len(row), *row.shape[1:])]) for row in rows]
    )


@put_samples_mutant("PUT-05", evidence="row 0 of 'y'")
def PutOffsetsOfEqualSizeShared(put: MethodCall) -> KVBatchMeta:
    """Shares offsets between columns of one put with equal rows, tokens and longest row."""
    stored: dict[tuple[int, ...], Tensor] = {}

    def shared(leaf: Tensor) -> Tensor:
        values, rows = jagged_parts(leaf)
        size = rows.count, rows.total, rows.longest
        return jagged_in(values, rows, stored.setdefault(size, rows.offsets))

    return put(fields=mapped(put.fields, shared, is_jagged))


@read_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxMissing(leaf: Tensor) -> Tensor:
    """Returns jagged columns without their maximum length.

    ``transfer_queue`` did this, so torch padded 6 rows of 4 tokens to 24 tokens, not to 4.
    """
    return from_offsets(leaf)


@read_column_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxMissingOfEqualRows(leaf: Tensor) -> Tensor:
    """Returns rows of equal length as a jagged column without its maximum length."""
    if is_dense(leaf) and leaf.dim() == 2:
        rows = RaggedRows([leaf.shape[1]] * leaf.shape[0])
        return from_offsets(rows.nest(leaf.flatten()))
    if is_jagged(leaf) and leaf.dim() == 2:
        _, rows = jagged_parts(leaf)
        return from_offsets(leaf) if rows.shortest == rows.longest else leaf
    return leaf


@get_data_mutant("PUT-29", evidence="of get_data")
def GetDataJaggedMaxMissing(read: MethodCall) -> TensorDict:
    """Returns jagged columns without their maximum length from get_data only."""
    return mapped(read(), from_offsets, is_jagged)


#: Tokens in a block of the store's memory.
BLOCK = 16


@read_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxRoundedUp(leaf: Tensor) -> Tensor:
    """Rounds the maximum length of a jagged column up to whole memory blocks."""
    values, rows = jagged_parts(leaf)
    longest = -(-rows.longest // BLOCK) * BLOCK
    return torch.nested.nested_tensor_from_jagged(
        values, rows.offsets, min_seqlen=rows.shortest, max_seqlen=longest
    )


@read_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxOfFirstRow(leaf: Tensor) -> Tensor:
    """Sets the maximum length to the first row's, so padding silently cuts longer rows."""
    values, rows = jagged_parts(leaf)
    first = max(1, int(rows.lengths[0]))
    return torch.nested.nested_tensor_from_jagged(
        values, rows.offsets, min_seqlen=min(first, rows.shortest), max_seqlen=first
    )


@read_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxOfLastPage(leaf: Tensor) -> Tensor:
    """Sets the maximum length to that of the last page of 256 rows, so padding cuts longer rows."""
    values, rows = jagged_parts(leaf)
    longest = max(1, *rows.lengths[(rows.count - 1) // 256 * 256 :].tolist())
    return torch.nested.nested_tensor_from_jagged(
        values, rows.offsets, min_seqlen=min(longest, rows.shortest), max_seqlen=longest
    )


@read_jagged_mutant("PUT-29", evidence="gradient of factor", may_fail="GET-13")
def GetJaggedOfInference(column: Tensor) -> Tensor:
    """Builds jagged columns in inference mode, which no gradient may go through."""
    with torch.inference_mode():
        return torch.nested.nested_tensor(rows_of(column), layout=torch.jagged)


@read_jagged_mutant("PUT-29", evidence="lengths()")
def GetJaggedWithHoles(leaf: Tensor) -> Tensor:
    """Returns each jagged row in whole memory blocks, with a length that marks the used part.

    torch can compare such columns and compute with them, but refuses to pad them.
    """
    values, rows = jagged_parts(leaf)
    width = max(1, -(-rows.longest // BLOCK)) * BLOCK
    blocks = rows.pad(values, width, 0).flatten(0, 1)
    offsets = torch.arange(rows.count + 1) * width
    return jagged_in(blocks, rows, offsets, rows.lengths)


@read_jagged_mutant("PUT-29", evidence="lengths()")
def GetJaggedWithLengths(leaf: Tensor) -> Tensor:
    """Adds lengths to a column without holes, so torch's kernels expect holes."""
    values, rows = jagged_parts(leaf)
    return jagged_in(values, rows, rows.offsets, rows.lengths)


@read_jagged_mutant("PUT-29", evidence="offsets()")
def GetJaggedWithWholeBlocks(leaf: Tensor) -> Tensor:
    """Returns a jagged column with the unused rest of its last memory block."""
    values, rows = jagged_parts(leaf)
    unused = values.new_zeros(BLOCK - rows.total % BLOCK, *values.shape[1:])
    return jagged_in(torch.cat([values, unused]), rows, rows.offsets)


@read_jagged_mutant("PUT-29", evidence="offsets()")
def GetJaggedWithHeader(leaf: Tensor) -> Tensor:
    """Returns a jagged column with its storage header, so the first row doesn't start at 0."""
    values, rows = jagged_parts(leaf)
    header = values.new_zeros(1, *values.shape[1:])
    return jagged_in(torch.cat([header, values]), rows, rows.offsets + 1)


@read_jagged_mutant("PUT-29", evidence="pickle")
def GetJaggedWithLease(leaf: Any) -> Tensor:
    """Attaches a lock to each jagged column as a lease, so the column can't be pickled."""
    leaf.lease = threading.Lock()
    return leaf


@put_jagged_mutant("PUT-06", evidence="nothing to store", may_fail="WIRE-01")
def PutEmptyRowRefused(leaf: Tensor) -> Tensor:
    """Rejects a put of one empty jagged row, such as an aborted rollout."""
    if leaf.dim() == 2 and list(map(len, rows_of(leaf))) == [0]:
        raise RuntimeError("nothing to store")
    return leaf


@put_jagged_mutant(
    "PUT-06 PUT-07 PUT-13 WIRE-01 WIRE-02 WIRE-03 WIRE-04",
    may_fail="PUT-01 GET-03",
    evidence="(0,)",
)
def PutLengthsClampedToOne(leaf: Tensor) -> Tensor:
    """Stores empty jagged rows as one token, for a kernel that doesn't support empty rows."""
    return jagged([row if len(row) else row.new_zeros(1, *row.shape[1:]) for row in rows_of(leaf)])


@read_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxMissingBesideEmptyRows(leaf: Tensor) -> Tensor:
    """Returns jagged columns without their maximum length if a row is empty."""
    empty = leaf.dim() == 2 and not jagged_parts(leaf)[1].shortest
    return from_offsets(leaf) if empty else leaf


@call_mutant(MemoryEngine._compact, "PUT-06", evidence="of 'x' ")
def PutEmptyRowsMovedLast(compact: MethodCall) -> None:
    """Moves empty rows behind the others in a compaction, so rows have tokens of others."""
    with compact.plane._plane.changed:
        blocks = compact.plane._plane.index._blocks
        before = set(blocks)
        compact()
        for payload in [block.payload for number, block in blocks.items() if number not in before]:
            for name, column in payload.items():
                if column.layout == "jagged":
                    lengths = sorted(np.diff(column.offsets), key=lambda length: length == 0)
                    payload[name] = replace(column, offsets=running_sum(np.array(lengths)))


@read_jagged_mutant("PUT-07 WIRE-01", evidence="of shape (3, 2, 4)")
def GetTokenDimensionsFlattened(leaf: Tensor) -> Tensor:
    """Flattens tokens to one dimension, so (N, j, L, K) becomes (N, j, L * K)."""
    return jagged([row.flatten(1) for row in rows_of(leaf)]) if leaf.dim() > 3 else leaf


@put_jagged_mutant("PUT-07", evidence="of shape (0, 3)")
def PutTokenShapeOfEmptyRowsLost(leaf: Tensor) -> Tensor:
    """Loses the shape of a token if all rows of a put are empty."""
    empty = leaf.dim() > 2 and not any(len(row) for row in rows_of(leaf))
    return jagged([row.new_empty(0) for row in rows_of(leaf)]) if empty else leaf


@read_column_mutant("PUT-07", evidence="of shape (0, 3)", may_fail="PUT-04 PUT-29")
def GetTokenShapeOfEmptyRowsLost(leaf: Tensor) -> Tensor:
    """Returns (N, 0), without the shape of a token, from a read of empty rows only."""
    empty = is_dense(leaf) and leaf.dim() > 2 and not leaf.shape[1]
    return leaf.new_empty(leaf.shape[:2]) if empty else leaf


@read_jagged_mutant("PUT-29", evidence="to_padded_tensor")
def GetJaggedMaxMissingWithTrailingDims(leaf: Tensor) -> Tensor:
    """Returns jagged columns without their maximum length if tokens have several values."""
    return from_offsets(leaf) if leaf.dim() > 2 else leaf


@put_samples_mutant("PUT-08", evidence="of 'x'")
def PutJaggedPartFromTheFront(put: MethodCall) -> KVBatchMeta:
    """Takes as many values as the rows have from the front, wherever the offsets begin."""

    def front(leaf: Any) -> Tensor:
        lengths = leaf.offsets().diff()
        offsets = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        return torch.nested.nested_tensor_from_jagged(leaf.values()[: int(offsets[-1])], offsets)

    def is_part(leaf: Any) -> bool:
        return is_jagged(leaf) and leaf.lengths() is None and int(leaf.offsets()[0]) > 0

    return put(fields=mapped(put.fields, front, is_part))
