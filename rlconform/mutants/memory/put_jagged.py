"""Jagged columns with wrong rows or lengths, or that torch can not pad or pickle."""

from __future__ import annotations

import threading
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import BatchMeta
from rlconform.mutants.memory.column_helpers import Altering, from_offsets, is_dense, jagged, mapped
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.types import Names
from rlconform.wire.leaves import is_jagged, jagged_parts, rows_of
from rlconform.wire.ragged_rows import RaggedRows


@memory_mutant("PUT-05", evidence="of 'x' =")
class GetEvenBfloat16RowsAsFloat32(Altering):
    """Converts jagged bfloat16 rows of equal length to float32 and back, which changes NaNs."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_dense(leaf) or leaf.dim() > 2 or leaf.dtype is not torch.bfloat16:
            return leaf
        rows = rows_of(leaf)
        even = len(rows) > 1 and len({row.shape for row in rows}) == 1
        return torch.stack(rows).float().bfloat16() if even else leaf


@memory_mutant("PUT-05", "WIRE-01", evidence="of shape")
class PutTrailingZerosDropped(Altering):
    """Drops zeros at the end of jagged rows, because it stores rows padded with zeros."""

    def given(self, leaf: Tensor) -> Tensor:
        if is_dense(leaf) or leaf.dim() > 2 or leaf.dtype is not torch.int64:
            return leaf
        return jagged([row[: int(row.nonzero()[-1:].sum()) + 1] for row in rows_of(leaf)])


@memory_mutant("PUT-05", evidence="of shape (70000,)", may_fail=("PUT-09",))
class PutLengthsInTwoBytes(Altering):
    """Stores row lengths in 16 bits, so a row of 65,536 tokens is read as empty."""

    def stored(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        return jagged([row[: len(row) % 2**16] for row in rows_of(leaf)])


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="to_padded_tensor")
class GetJaggedMaxMissing(Altering):
    """Returns jagged columns without their maximum length.

    ``transfer_queue`` did: 6 rows of 4 tokens were padded to 24, not to 4.
    """

    def given(self, leaf: Tensor) -> Tensor:
        return from_offsets(leaf) if is_jagged(leaf) else leaf


@memory_mutant("PUT-05", evidence="to_padded_tensor", may_fail=("PUT-06",))
class GetJaggedMaxMissingOfEqualRows(Altering):
    """Returns rows of equal length as a jagged column without its maximum length."""

    def given(self, leaf: Tensor) -> Tensor:
        if is_dense(leaf) and leaf.dim() == 2:
            rows = RaggedRows([leaf.shape[1]] * leaf.shape[0])
            return from_offsets(rows.nest(leaf.flatten()))
        if is_jagged(leaf) and leaf.dim() == 2:
            _, rows = jagged_parts(leaf)
            return from_offsets(leaf) if rows.shortest == rows.longest else leaf
        return leaf


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="of get_data")
class GetDataJaggedMaxMissing(MemoryClient):
    """Returns jagged columns without their maximum length from get_data only."""

    def get_data(self, meta: BatchMeta, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        return mapped(batch, lambda leaf: from_offsets(leaf) if is_jagged(leaf) else leaf)


#: Tokens in a block of the store's memory.
BLOCK = 16


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="to_padded_tensor")
class GetJaggedMaxRoundedUp(Altering):
    """Rounds the maximum length of a jagged column up to whole memory blocks."""

    def given(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        return torch.nested.nested_tensor_from_jagged(
            values,
            rows.offsets,
            min_seqlen=rows.shortest,
            max_seqlen=-(-rows.longest // BLOCK) * BLOCK,
        )


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="to_padded_tensor")
class GetJaggedMaxOfFirstRow(Altering):
    """Sets the maximum length to the first row's, so padding silently cuts longer rows."""

    def given(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        first = max(1, int(rows.lengths[0]))
        return torch.nested.nested_tensor_from_jagged(
            values, rows.offsets, min_seqlen=min(first, rows.shortest), max_seqlen=first
        )


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="lengths()")
class GetJaggedWithHoles(Altering):
    """Returns jagged rows in whole memory blocks, with lengths that mark the used part of each.

    torch compares and computes with such a column, and refuses to pad it.
    """

    def given(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        width = max(1, -(-rows.longest // BLOCK)) * BLOCK
        blocks = rows.pad(values, width, 0).flatten(0, 1)
        offsets = torch.arange(rows.count + 1) * width
        return torch.nested.nested_tensor_from_jagged(
            blocks,
            offsets,
            lengths=rows.lengths,
            min_seqlen=rows.shortest,
            max_seqlen=rows.longest,
        )


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="lengths()")
class GetJaggedWithLengths(Altering):
    """Adds lengths to a column without holes, so torch's kernels treat it as one with holes."""

    def given(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        return torch.nested.nested_tensor_from_jagged(
            values, rows.offsets, rows.lengths, min_seqlen=rows.shortest, max_seqlen=rows.longest
        )


class _LeavesValuesOver(Altering):
    """Returns columns whose memory holds more values than their rows."""

    before = 0

    def after(self, total: int) -> int:
        """The number of unused values behind ``total`` tokens."""
        raise NotImplementedError

    def given(self, leaf: Tensor) -> Tensor:
        """The column, with unused values before and after its rows."""
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        filled = [
            values.new_zeros(self.before, *values.shape[1:]),
            values,
            values.new_zeros(self.after(rows.total), *values.shape[1:]),
        ]
        return torch.nested.nested_tensor_from_jagged(
            torch.cat(filled),
            rows.offsets + self.before,
            min_seqlen=rows.shortest,
            max_seqlen=rows.longest,
        )


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="offsets()")
class GetJaggedWithWholeBlocks(_LeavesValuesOver):
    """Returns a jagged column with the unused rest of its last memory block."""

    def after(self, total: int) -> int:
        return BLOCK - total % BLOCK


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="offsets()")
class GetJaggedWithHeader(_LeavesValuesOver):
    """Returns a jagged column with its storage header, so the first row doesn't start at 0."""

    before = 1

    def after(self, total: int) -> int:
        return 0


@memory_mutant("PUT-05", "PUT-06", "PUT-07", evidence="pickle")
class GetJaggedWithLease(Altering):
    """Attaches a lock to each jagged column to reserve its memory, so it can't be pickled."""

    def given(self, leaf: Tensor) -> Tensor:
        if is_jagged(leaf):
            held: Any = leaf
            held.lease = threading.Lock()
        return leaf


@memory_mutant("PUT-06", evidence="nothing to store", may_fail=("WIRE-01",))
class PutEmptyRowRefused(Altering):
    """Rejects a put of one empty jagged row, such as an aborted rollout."""

    def stored(self, leaf: Tensor) -> Tensor:
        if is_jagged(leaf) and leaf.dim() == 2 and list(map(len, rows_of(leaf))) == [0]:
            raise RuntimeError("nothing to store")
        return leaf


@memory_mutant(
    "PUT-06",
    "PUT-07",
    "PUT-13",
    "WIRE-01",
    "WIRE-02",
    "WIRE-03",
    "WIRE-04",
    may_fail=("PUT-01", "GET-03"),
    evidence="(0,)",
)
class PutLengthsClampedToOne(Altering):
    """Stores empty jagged rows as one token, for a kernel that doesn't support empty rows."""

    def stored(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        return jagged(
            [row if len(row) else row.new_zeros(1, *row.shape[1:]) for row in rows_of(leaf)]
        )


@memory_mutant("PUT-06", evidence="to_padded_tensor")
class GetJaggedMaxMissingBesideEmptyRows(Altering):
    """Returns jagged columns without their maximum length if a row is empty."""

    def given(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf) or leaf.dim() != 2 or jagged_parts(leaf)[1].shortest:
            return leaf
        return from_offsets(leaf)


@memory_mutant("PUT-07", "WIRE-01", evidence="of shape (3, 2, 4)")
class GetTokenDimensionsFlattened(Altering):
    """Flattens tokens to one dimension, so (N, j, L, K) becomes (N, j, L * K)."""

    def given(self, leaf: Tensor) -> Tensor:
        return (
            jagged([row.flatten(1) for row in rows_of(leaf)])
            if leaf.dim() > 3 and is_jagged(leaf)
            else leaf
        )


@memory_mutant("PUT-07", evidence="of shape (0, 3)")
class PutTokenShapeOfEmptyRowsLost(Altering):
    """Loses the shape of a token if all rows of a put are empty."""

    def stored(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf) or leaf.dim() == 2 or any(len(row) for row in rows_of(leaf)):
            return leaf
        return jagged([row.new_empty(0) for row in rows_of(leaf)])


@memory_mutant("PUT-07", evidence="to_padded_tensor", may_fail=("PUT-05",))
class GetJaggedMaxMissingWithTrailingDims(Altering):
    """Returns jagged columns without their maximum length if tokens have several values."""

    def given(self, leaf: Tensor) -> Tensor:
        return from_offsets(leaf) if is_jagged(leaf) and leaf.dim() > 2 else leaf
