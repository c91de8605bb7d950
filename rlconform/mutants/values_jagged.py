"""Jagged columns with the right rows in them that torch can't use: padded wrong, or refused."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import BatchMeta
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import Altering, is_dense, mapped
from rlconform.wire.leaves import is_jagged, jagged_parts
from rlconform.wire.ragged_rows import RaggedRows

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)

#: Tokens of a block of a store's memory.
BLOCK = 16


def from_offsets(leaf: Tensor) -> Tensor:
    """The same rows as a column that doesn't know the longest: torch pads it to their sum."""
    values, rows = jagged_parts(leaf)
    return torch.nested.nested_tensor_from_jagged(values, rows.offsets)


@breaks("PUT-05", "PUT-06", "PUT-07", says="to_padded_tensor")
class ForgetsTheLongestRow(Altering):
    """Builds columns from values and offsets, and doesn't say which row is the longest.

    ``transfer_queue`` did: 6 rows of 4 tokens were padded to 24, not to 4.
    """

    def given(self, leaf: Tensor) -> Tensor:
        """The column, built of its offsets alone."""
        return from_offsets(leaf) if is_jagged(leaf) else leaf


@breaks("PUT-05", says="to_padded_tensor", may_fail=("PUT-06",))
class ForgetsTheLongestOfEqualRows(Altering):
    """Nests rows that are all of one length too, by another way, which knows no longest one."""

    def given(self, leaf: Tensor) -> Tensor:
        """Equal rows of tokens nested by their offsets."""
        if is_dense(leaf) and leaf.dim() == 2:
            rows = RaggedRows([leaf.shape[1]] * leaf.shape[0])
            return from_offsets(rows.nest(leaf.flatten()))
        if is_jagged(leaf) and leaf.dim() == 2:
            _, rows = jagged_parts(leaf)
            return from_offsets(leaf) if rows.shortest == rows.longest else leaf
        return leaf


@breaks("PUT-06", says="to_padded_tensor")
class ForgetsTheLongestBesideEmptyRows(Altering):
    """Leaves empty rows out and works their offsets in later: the longest row isn't known then."""

    def given(self, leaf: Tensor) -> Tensor:
        """A column of tokens with empty rows, built of its offsets alone."""
        if not is_jagged(leaf) or leaf.dim() != 2 or jagged_parts(leaf)[1].shortest:
            return leaf
        return from_offsets(leaf)


@breaks("PUT-07", says="to_padded_tensor", may_fail=("PUT-05",))
class ForgetsTheLongestRowOfExperts(Altering):
    """Stores tokens of several values flat, and builds their columns of the offsets alone."""

    def given(self, leaf: Tensor) -> Tensor:
        """A column with trailing dimensions, built of its offsets alone."""
        return from_offsets(leaf) if is_jagged(leaf) and leaf.dim() > 2 else leaf


@breaks("PUT-05", "PUT-06", "PUT-07", says="of get_data")
class ForgetsTheLongestRowByMeta(MemoryClient):
    """Reads by a meta take a way of their own, on which columns are built of their offsets."""

    def get_data(self, meta: BatchMeta, select_fields: list[str] | None = None) -> TensorDict:
        """Read what a meta names."""
        batch = super().get_data(meta, select_fields)
        return mapped(batch, lambda leaf: from_offsets(leaf) if is_jagged(leaf) else leaf)


@breaks("PUT-05", "PUT-06", "PUT-07", says="to_padded_tensor")
class RoundsTheLongestRowUp(Altering):
    """Names the longest row's length in whole blocks, as its memory was reserved."""

    def given(self, leaf: Tensor) -> Tensor:
        """The column, its longest row said to fill its last block."""
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        return torch.nested.nested_tensor_from_jagged(
            values,
            rows.offsets,
            min_seqlen=rows.shortest,
            max_seqlen=-(-rows.longest // BLOCK) * BLOCK,
        )


@breaks("PUT-05", "PUT-06", "PUT-07", says="to_padded_tensor")
class TakesTheFirstRowForTheLongest(Altering):
    """Names the first row's length as the longest: padding cuts longer rows, and says nothing."""

    def given(self, leaf: Tensor) -> Tensor:
        """The column, with that length, at least a token."""
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        first = max(1, int(rows.lengths[0]))
        return torch.nested.nested_tensor_from_jagged(
            values, rows.offsets, min_seqlen=min(first, rows.shortest), max_seqlen=first
        )


@breaks("PUT-05", "PUT-06", "PUT-07", says="lengths()")
class GivesHoles(Altering):
    """Keeps rows in blocks of memory and gives these, with lengths that say what of each is used.

    torch compares and computes with such a column, and refuses to pad it.
    """

    def given(self, leaf: Tensor) -> Tensor:
        """The column with its rows' unused memory between them."""
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


@breaks("PUT-05", "PUT-06", "PUT-07", says="lengths()")
class GivesLengthsBesideOffsets(Altering):
    """Gives each row's length although the offsets say it: torch's kernels then expect holes."""

    def given(self, leaf: Tensor) -> Tensor:
        """The column, with lengths."""
        if not is_jagged(leaf):
            return leaf
        values, rows = jagged_parts(leaf)
        return torch.nested.nested_tensor_from_jagged(
            values, rows.offsets, rows.lengths, min_seqlen=rows.shortest, max_seqlen=rows.longest
        )


class _LeavesValuesOver(Altering):
    """Gives columns over memory that holds more values than their rows."""

    before = 0

    def after(self, total: int) -> int:
        """Values behind those of ``total`` tokens."""
        raise NotImplementedError

    def given(self, leaf: Tensor) -> Tensor:
        """The column, with values left over."""
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


@breaks("PUT-05", "PUT-06", "PUT-07", says="offsets()")
class GivesWholeBlocks(_LeavesValuesOver):
    """Gives a column with all of the last block that it was stored in, used or not."""

    def after(self, total: int) -> int:
        """What is unused of the last block, of which there is one at least."""
        return BLOCK - total % BLOCK


@breaks("PUT-05", "PUT-06", "PUT-07", says="offsets()")
class GivesItsHeader(_LeavesValuesOver):
    """Gives a column with the header that it was stored behind: the first row starts after it."""

    before = 1

    def after(self, total: int) -> int:  # noqa: ARG002 - there is nothing behind
        """Nothing."""
        return 0


@breaks("PUT-05", "PUT-06", "PUT-07", says="pickle")
class GivesLeases(Altering):
    """Keeps the store's memory reserved as long as a column lives, by a lock that hangs on it."""

    def given(self, leaf: Tensor) -> Tensor:
        """The column, with a lease that can't be sent anywhere."""
        if is_jagged(leaf):
            held: Any = leaf
            held.lease = threading.Lock()
        return leaf
