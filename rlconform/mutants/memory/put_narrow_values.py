"""Columns that are stored in fewer bytes than their dtype has, and lose some of their values."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import is_dense, mapped
from rlconform.mutants.memory.helpers import get_samples_mutant, put_samples_mutant
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


def _pages_that_sum_to_zero(leaf: Tensor) -> Tensor:
    """Return the column with each page of 1,024 elements whose sum is zero as zeros."""
    stored = leaf.detach().clone().reshape(-1)
    pages = stored[: len(stored) // 1024 * 1024].view(-1, 1024)
    pages[pages.double().sum(1) == 0] = 0
    return stored.reshape(leaf.shape)


@put_samples_mutant("PUT-01", evidence="of 'x' =")
def PutPagesThatSumToZeroLeftOut(put: MethodCall) -> KVBatchMeta:
    """Leaves pages of zeros out of large columns, and takes a sum of zero for one."""

    def large(leaf: Tensor) -> bool:
        return is_dense(leaf) and leaf.dtype is not torch.bool and leaf.nbytes >= 1 << 16

    return put(fields=mapped(put.fields, _pages_that_sum_to_zero, large))


def _column_over_the_tail(name: str, batch: TensorDict) -> Tensor:
    """Return the column with the last bytes that the next one overwrites."""
    rows = batch.get(name).contiguous()
    written = rows.view(torch.uint8).reshape(-1)
    written[len(written) // 64 * 64 :] = 0
    return rows


@get_samples_mutant("PUT-01", evidence="of 'x' =")
def GetColumnsFromRoundedPlaces(read: MethodCall) -> TensorDict:
    """Reads large columns into one piece of memory, each at a place that is rounded down."""
    batch: TensorDict = read()
    names = [name for name in map(str, batch.keys()) if is_dense(batch.get(name))]
    for name in names[:-1]:
        if 1 << 18 <= batch.get(name).nbytes < 1 << 23:
            batch.set(name, _column_over_the_tail(name, batch))
    return batch


#: Values of a column by which a plane chooses its type.
FIRST = 1024

#: Types with fewer bytes, the smallest first.
SMALLER = {
    torch.int16: [torch.int8, torch.uint8],
    torch.int32: [torch.int8, torch.uint8, torch.int16],
    torch.int64: [torch.int8, torch.uint8, torch.int16, torch.int32],
    torch.float32: [torch.float16],
    torch.float64: [torch.float16, torch.float32],
}


def _packed_by_first(leaf: Tensor) -> Tensor:
    """Return the column as the smallest type holds it that is exact for its first values."""
    if len(leaf) <= FIRST:
        return leaf
    for dtype in SMALLER[leaf.dtype]:
        if torch.equal(leaf[:FIRST].to(dtype).to(leaf.dtype), leaf[:FIRST]):
            return leaf.to(dtype).to(leaf.dtype)
    return leaf


@put_samples_mutant("PUT-01", evidence="in that row")
def PutNumbersPackedByFirstPage(put: MethodCall) -> KVBatchMeta:
    """Packs columns of numbers to the smallest type that holds their first 1,024 rows.

    A value of a later row that does not fit comes back as another one.
    """

    def numbers(leaf: Tensor) -> bool:
        return is_dense(leaf) and leaf.dim() == 1 and leaf.dtype in SMALLER

    return put(fields=mapped(put.fields, _packed_by_first, numbers))


@put_samples_mutant("PUT-01", evidence="of 'x' =")
def PutNumbersPackedByFirstElements(put: MethodCall) -> KVBatchMeta:
    """Packs int64 columns to 32 bits if these hold the first 4,096 elements."""

    def packed(leaf: Tensor) -> Tensor:
        first = leaf.reshape(-1)[:4096]
        fits = torch.equal(first.to(torch.int32).to(leaf.dtype), first)
        return leaf.to(torch.int32).to(leaf.dtype) if fits else leaf

    return put(
        fields=mapped(put.fields, packed, lambda leaf: is_dense(leaf) and leaf.dtype is torch.int64)
    )
