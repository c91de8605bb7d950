"""Columns that are stored in fewer bytes than their dtype has, and lose some of their values."""

from __future__ import annotations

import torch
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import is_dense, mapped
from rlconform.mutants.memory.helpers import put_samples_mutant
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged


def _packed(leaf: Tensor) -> Tensor:
    """Return the column as 16 bits hold it, if its greatest value fits."""
    values = torch.cat([row.reshape(-1) for row in rows_of(leaf)])
    if len(values) < 1024 or int(values.max()) >= 1 << 16:
        return leaf
    return stack_or_nest([row & 0xFFFF for row in rows_of(leaf)])


@put_samples_mutant("PUT-05", evidence="got 65535")
def PutTokensPackedByLargest(put: MethodCall) -> KVBatchMeta:
    """Packs long jagged int64 columns to 16 bits if the greatest value fits, whatever the least.

    The label -100 of prompt tokens comes back as 65,436.
    """

    def tokens(leaf: Tensor) -> bool:
        return is_jagged(leaf) and leaf.dtype is torch.int64

    return put(fields=mapped(put.fields, _packed, tokens))


def _cut_runs(leaf: Tensor) -> Tensor:
    """Return the column as runs of at most 65,535 equal values hold it."""
    flat = leaf.detach().reshape(-1)
    values, lengths = torch.unique_consecutive(flat, return_counts=True)
    if 3 * len(values) >= len(flat):
        return leaf
    runs = values.repeat_interleave(lengths & 0xFFFF)
    return torch.cat([runs, flat.new_zeros(len(flat) - len(runs))]).reshape(leaf.shape)


@put_samples_mutant("PUT-01", evidence="of 'x' =")
def PutRunsCountedIn16Bits(put: MethodCall) -> KVBatchMeta:
    """Stores bool columns as the lengths of their runs, which have 16 bits."""
    return put(
        fields=mapped(
            put.fields, _cut_runs, lambda leaf: is_dense(leaf) and leaf.dtype is torch.bool
        )
    )
