"""Views whose strides, gaps, gradients or storage the plane handles wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import (
    is_dense,
    mapped,
    put_column_mutant,
    put_jagged_mutant,
    read_column_mutant,
)
from rlconform.mutants.memory.helpers import IMPATIENT, memory_mutant, put_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags


@put_column_mutant("PUT-08", evidence="stride")
def PutExpandedRowsRefused(leaf: Tensor) -> Tensor:
    """Rejects expanded columns, because it can't view them as bytes."""
    if is_dense(leaf) and leaf.dim() == 2 and leaf.stride(0) == 0 and len(leaf) > 1:
        raise RuntimeError("view size is not compatible with input tensor's size and stride")
    return leaf


@put_column_mutant("PUT-08", evidence="of 'x' =")
def PutStridesIgnored(leaf: Tensor) -> Tensor:
    """Ignores the strides of a column and reads its bytes in memory order."""
    square = is_dense(leaf) and leaf.dim() == 2 and leaf.stride() == (1, len(leaf))
    return leaf.T.reshape(leaf.shape) if square else leaf


@put_column_mutant("PUT-08", evidence="requires grad")
def PutGradRefused(leaf: Tensor) -> Tensor:
    """Rejects tensors that require grad, because it converts them to numpy."""
    if leaf.requires_grad:
        raise RuntimeError("can't call numpy() on a tensor that requires grad")
    return leaf


@read_column_mutant("PUT-08", evidence="untouched by a write to row 0")
def GetEqualRowsExpanded(leaf: Tensor) -> Tensor:
    """Returns a column of equal rows as one expanded row, so a write to one row changes all."""
    if not is_dense(leaf) or leaf.dim() != 2 or not leaf.numel():
        return leaf
    return leaf[:1].expand_as(leaf) if bool((leaf == leaf[:1]).all()) else leaf


@put_jagged_mutant("PUT-08", evidence="row")
def PutJaggedGapsForgotten(leaf: Tensor) -> Tensor:
    """Ignores the lengths of a jagged column with gaps, so rows include the gaps."""
    plain: Any = leaf.detach()
    if plain.lengths() is None:
        return leaf
    return torch.nested.nested_tensor_from_jagged(plain.values(), plain.offsets())


@put_jagged_mutant("PUT-08", evidence="requires grad")
def PutJaggedGradRefused(leaf: Tensor) -> Tensor:
    """Rejects jagged columns that require grad, because it detaches only dense ones."""
    if leaf.requires_grad:
        raise RuntimeError("can't call numpy() on a tensor that requires grad")
    return leaf


@memory_mutant("PUT-10", evidence="views of 2 MiB")
class PutViewKeepsItsStorage(MemoryClient):
    """Keeps the whole storage of a view in memory until a clear."""

    _kept = State(dict[str, list[torch.UntypedStorage]])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for leaf in fields.values() if fields is not None else ():
            if isinstance(leaf, Tensor) and leaf.layout in {torch.strided, torch.jagged}:
                whole = leaf.values() if leaf.is_nested else leaf
                self._kept.setdefault(partition_id, []).append(whole.untyped_storage())
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._kept.pop(partition_id, None)


#: Columns of as many bytes are sent as an address and a size.
LARGE = 8 << 20


@put_column_mutant("PUT-08", evidence="of 'x' =", may_fail="PUT-10")
def PutLargeViewsSentByAddress(leaf: Tensor) -> Tensor:
    """Sends columns of 8 MiB or more as an address and a size, without their strides."""
    if not is_dense(leaf) or leaf.nbytes < LARGE or leaf.is_contiguous():
        return leaf
    room = leaf.untyped_storage().nbytes() // leaf.itemsize - leaf.storage_offset()
    sent = leaf.new_zeros(leaf.numel())  # zeros are what lies behind the memory of the column
    inside = leaf.detach().as_strided((min(room, leaf.numel()),), (1,))
    sent[: len(inside)] = inside
    return sent.reshape(leaf.shape)


#: A busy machine must be able to send half a gigabyte within this limit.
PATIENT = replace(IMPATIENT, operation=10, check=60)


@put_column_mutant("PUT-10", evidence="putting a 1 MiB slice of 512 MiB", timeouts=PATIENT)
def PutViewSendsStorage(leaf: Tensor) -> Tensor:
    """Sends the whole storage of a view, as pickle does."""
    if is_dense(leaf):
        leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
    return leaf


@put_column_mutant("PUT-10", evidence="within 5x", timeouts=PATIENT)
def PutStridedViewSendsStorage(leaf: Tensor) -> Tensor:
    """Sends the whole storage of a view that is not contiguous."""
    if is_dense(leaf) and not leaf.is_contiguous():
        leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
    return leaf


@put_jagged_mutant("PUT-10", evidence="within 5x", timeouts=PATIENT)
def PutJaggedViewSendsStorage(leaf: Tensor) -> Tensor:
    """Sends the whole storage of a jagged column's tokens, as pickle does."""
    leaf.detach().values().untyped_storage().clone()  # type: ignore[no-untyped-call]
    return leaf


@put_mutant("PUT-08", evidence="row ")
def PutViewsOfOneAddressTakenForOne(put: MethodCall) -> None:
    """Copies a tensor once that is put under two names, known by its address, shape and dtype."""
    copied: dict[tuple[int, torch.Size, torch.dtype], Tensor] = {}

    def once(leaf: Tensor) -> Tensor:
        if not is_dense(leaf) or not leaf.numel():
            return leaf
        return copied.setdefault((leaf.data_ptr(), leaf.shape, leaf.dtype), leaf)

    put(fields=mapped(put.fields, once))
