"""Planes that carry small columns correctly, but not padded or jagged columns."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import (
    PutOrigin,
    TracksPuts,
    is_dense,
    jagged,
    mapped,
    read_jagged_mutant,
    values_in,
)
from rlconform.mutants.memory.helpers import memory_mutant, names_of, put_samples_mutant
from rlconform.wire import rows_of
from rlconform.wire.leaves import is_jagged


@read_jagged_mutant(
    "WIRE-01", evidence="'input_ids' of row", may_fail="PUT-01 PUT-05 PUT-06 PUT-13"
)
def GetTrailingZerosTrimmed(leaf: Tensor) -> Tensor:
    """Trims zeros at the end of rows of token ids, even if the zeros are tokens."""
    if leaf.dtype != torch.int64 or leaf.dim() != 2:
        return leaf
    rows = rows_of(leaf)
    return jagged([row[: int(row.nonzero().max()) + 1] if row.any() else row for row in rows])


@memory_mutant("WIRE-02", evidence="'input_ids' of row")
class GetEmptyRowsAsOneToken(TracksPuts):
    """Returns one token for each empty row if all rows of the read are empty.

    Rows from a put of only empty rows are returned correctly.
    """

    def changed(self, leaf: Tensor, origins: list[PutOrigin]) -> Tensor:
        if leaf.dim() == 1 or values_in(leaf) or not origins[0].values:
            return leaf
        return torch.zeros(len(origins), 1, *leaf.shape[2:], dtype=leaf.dtype)


@memory_mutant(
    "WIRE-03 SHARD-02", evidence="'prev_logprobs' of row", may_fail="PUT-05 PUT-13 GET-01"
)
class GetWidthOfFirstPut(TracksPuts):
    """Truncates rows in a read of many puts to the longest row of the first put."""

    def changed(self, leaf: Tensor, origins: list[PutOrigin]) -> Tensor:
        puts = [origin.put for origin in origins]
        if not is_jagged(leaf) or len(set(puts)) < 3:
            return leaf
        rows = rows_of(leaf)
        width = max(len(row) for row, put in zip(rows, puts, strict=True) if put == min(puts))
        return jagged([row[:width] for row in rows])


@put_samples_mutant("WIRE-04", evidence="'pixel_values' of row")
def PutImageHeightTakenForTokens(put: MethodCall) -> KVBatchMeta:
    """Treats an image as a padded column if its height equals the longest length, and cuts it."""
    lengths: Any = put.fields.get(INPUT_LENGTHS, None) if names_of(put.fields) else None

    def looks_padded(leaf: Tensor) -> bool:
        return is_dense(leaf) and leaf.dim() > 2 and leaf.shape[1] == int(lengths.max())

    def cut(leaf: Tensor) -> Tensor:
        return jagged([row[:n] for row, n in zip(leaf, lengths, strict=True)])

    return put() if lengths is None else put(fields=mapped(put.fields, cut, looks_padded))
