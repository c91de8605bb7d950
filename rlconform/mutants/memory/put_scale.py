"""Large values that are stored or read wrongly, and values that are mistaken for padding."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import put_column_mutant, read_jagged_mutant
from rlconform.mutants.memory.helpers import get_samples_mutant, names_of, put_samples_mutant
from rlconform.wire import rows_of, stack_or_nest

#: Bytes of a message; a longer row is sent in several messages.
MESSAGE = 4 << 20


@put_column_mutant("PUT-04", evidence="bytes")
def PutRestOfLastMessageLost(column: Tensor) -> Tensor:
    """Zeroes the bytes after the last whole block of 16 bytes in rows of more than 4 MiB."""
    row_bytes = 0 if column.is_nested else column[:1].numel() * column.element_size()
    if row_bytes <= MESSAGE:
        return column
    sent = column.clone()
    sent.view(len(sent), -1)[:, -(row_bytes % 16) or None :] = 0
    return sent


@read_jagged_mutant("PUT-05", evidence="row 0 of 'x' of shape (16777217,)")
def GetOffsetsInFloat32(column: Any) -> Tensor:
    """Keeps offsets as float32, which is exact for integers only up to 2**24."""
    ends = column.offsets()[1:-1].to(torch.float32).to(torch.int64)
    return stack_or_nest(list(column.values().tensor_split(ends)))


@read_jagged_mutant("PUT-05", evidence="of 'x' of shape", may_fail="PUT-06 PUT-07 PUT-13 WIRE-01")
def GetTrailingPaddingStripped(column: Tensor) -> Tensor:
    """Strips -100 from the end of integer rows, as if it were padding."""
    rows = rows_of(column)
    if column.dtype is not torch.int64 or any(row.dim() != 1 for row in rows):
        return column
    ends = [int((row != -100).nonzero().max()) + 1 if (row != -100).any() else 0 for row in rows]
    return stack_or_nest([row[:end] for row, end in zip(rows, ends, strict=True)])


@get_samples_mutant("PUT-11", evidence="'f32'")
def GetFieldsLimitedTo32(read: MethodCall) -> TensorDict:
    """Returns only the first 32 fields of a read, because a request has room for 32 names."""
    return read(select_fields=read.select_fields[:32])


@put_column_mutant("PUT-08", evidence="row 0 of 'x'")
def PutInOrderOfMemory(column: Tensor) -> Tensor:
    """Copies a dense column of four dimensions in memory order, which may be channels last."""
    if column.is_nested or column.dim() != 4 or column.is_contiguous():
        return column
    return column.as_strided(column.shape, torch.empty(column.shape).stride())


@put_samples_mutant("PUT-04", evidence="row 0 of 'x'", may_fail="WIRE-01")
def PutDensePaddedByLengths(put: MethodCall) -> KVBatchMeta:
    """Treats a dense column as padded if the longest length is its width, and zeroes row ends."""
    lengths = [tags.get("input_lengths") for tags in put.tags or ()]
    leaf = put.fields.get("x", None) if names_of(put.fields) else None
    if leaf is None or leaf.is_nested or leaf.dim() != 2 or not lengths or None in lengths:
        return put()
    if leaf.shape[1] != max(lengths) or len(leaf) != len(lengths):
        return put()
    kept = torch.arange(leaf.shape[1]) < torch.tensor(lengths).unsqueeze(1)
    return put(fields=put.fields.copy().set("x", leaf * kept))
