"""Columns that are views: strides, gaps, gradients, and the storage behind a view."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.column_helpers import Altering, is_dense
from rlconform.mutants.memory.helpers import IMPATIENT, TracksClears, memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire.leaves import is_jagged


@memory_mutant("PUT-08", evidence="stride")
class PutExpandedRowsRefused(Altering):
    """Takes a column as a view of its bytes, which one that was expanded doesn't have."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_dense(leaf) and leaf.dim() == 2 and leaf.stride(0) == 0 and len(leaf) > 1:
            raise RuntimeError("view size is not compatible with input tensor's size and stride")
        return leaf


@memory_mutant("PUT-08", evidence="of 'x' =")
class PutStridesIgnored(Altering):
    """Takes a column's bytes from where they begin, as many as it has, whatever its strides."""

    def stored(self, leaf: Tensor) -> Tensor:
        square = is_dense(leaf) and leaf.dim() == 2 and leaf.stride() == (1, len(leaf))
        return leaf.T.reshape(leaf.shape) if square else leaf


@memory_mutant("PUT-08", evidence="requires grad")
class PutGradRefused(Altering):
    """Hands tensors to numpy, which takes none that requires grad."""

    def stored(self, leaf: Tensor) -> Tensor:
        if leaf.requires_grad:
            raise RuntimeError("can't call numpy() on a tensor that requires grad")
        return leaf


@memory_mutant("PUT-08", evidence="untouched by a write to row 0")
class GetEqualRowsExpanded(Altering):
    """Keeps one row of a column whose rows are all equal, and gives it expanded."""

    def given(self, leaf: Tensor) -> Tensor:
        if not is_dense(leaf) or leaf.dim() != 2 or not leaf.numel():
            return leaf
        return leaf[:1].expand_as(leaf) if bool((leaf == leaf[:1]).all()) else leaf


@memory_mutant("PUT-08", evidence="row")
class PutJaggedGapsForgotten(Altering):
    """Sends the tokens and offsets of a jagged column, and forgets the lengths that leave gaps."""

    def stored(self, leaf: Tensor) -> Tensor:
        plain: Any = leaf.detach()
        if not is_jagged(leaf) or plain.lengths() is None:
            return leaf
        return torch.nested.nested_tensor_from_jagged(plain.values(), plain.offsets())


@memory_mutant("PUT-08", evidence="requires grad")
class PutJaggedGradRefused(Altering):
    """Detaches dense columns, and hands the tokens of jagged ones to numpy as they are."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_jagged(leaf) and leaf.requires_grad:
            raise RuntimeError("can't call numpy() on a tensor that requires grad")
        return leaf


@memory_mutant("PUT-10", evidence="views of 2 MiB")
class PutViewKeepsItsStorage(TracksClears):
    """Keeps a view as it came, and with it all that lies behind it, until something is cleared."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[str, list[torch.UntypedStorage]] = {}

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


#: Half a gigabyte has to be sent within it, on a machine that is busy.
PATIENT = replace(IMPATIENT, operation=10, check=60)


@memory_mutant("PUT-10", evidence="putting a 1 MiB slice of 512 MiB", timeouts=PATIENT)
class PutViewSendsStorage(Altering):
    """Sends a view as pickle does: with all of the storage behind it."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_dense(leaf):
            leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
        return leaf


@memory_mutant("PUT-10", evidence="within 5x", timeouts=PATIENT)
class PutStridedViewSendsStorage(Altering):
    """Sends a column as it lies in memory, and one with gaps as its storage and its strides."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_dense(leaf) and not leaf.is_contiguous():
            leaf.untyped_storage().clone()  # type: ignore[no-untyped-call]
        return leaf


@memory_mutant("PUT-10", evidence="within 5x", timeouts=PATIENT)
class PutJaggedViewSendsStorage(Altering):
    """Copies dense columns, and pickles the tokens of jagged ones with all that lies behind."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_jagged(leaf):
            leaf.detach().values().untyped_storage().clone()  # type: ignore[no-untyped-call]
        return leaf
