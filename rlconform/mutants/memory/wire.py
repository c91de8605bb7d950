"""Planes that carry small columns correctly, but not the padded or jagged ones of a step."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.memory.column_helpers import (
    AlteredReads,
    TracksPuts,
    cells_of,
    is_jagged_tensor,
    nest,
)
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags
from rlconform.wire import rows_of


@memory_mutant(
    "WIRE-01", evidence="'input_ids' of row", may_fail=("PUT-01", "PUT-05", "PUT-06", "PUT-13")
)
class GetTrailingZerosTrimmed(AlteredReads):
    """Trims zeros at the end of rows of token ids, even if they are tokens."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        if not is_jagged_tensor(leaf) or leaf.dtype != torch.int64 or leaf.dim() != 2:
            return leaf
        rows = [row[: int(row.nonzero().max()) + 1] if row.any() else row for row in rows_of(leaf)]
        return nest(rows)


@memory_mutant("WIRE-02", evidence="'input_ids' of row")
class GetEmptyRowsAsOneToken(TracksPuts):
    """Returns one token for each empty row if all rows of the read are empty.

    A put of only empty rows is stored and returned without tokens.
    """

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        tokens = isinstance(leaf, torch.Tensor) and leaf.dim() > 1
        if not tokens or cells_of(leaf) or not self.noted(cells[0])[1]:
            return leaf
        return torch.zeros(len(cells), 1, *leaf.shape[2:], dtype=leaf.dtype)


@memory_mutant(
    "WIRE-03",
    "SHARD-02",
    evidence="'prev_logprobs' of row",
    may_fail=("PUT-05", "PUT-13", "GET-01"),
)
class GetWidthOfFirstPut(TracksPuts):
    """Truncates rows in a read of many puts to the longest row of the first put."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        puts = sorted({self.noted(cell)[0] for cell in cells})
        if not is_jagged_tensor(leaf) or len(puts) < 3:
            return leaf
        rows, first = rows_of(leaf), puts[0]
        of_first = [len(r) for r, c in zip(rows, cells, strict=True) if self.noted(c)[0] == first]
        return nest([row[: max(of_first)] for row in rows])


@memory_mutant("WIRE-04", evidence="'pixel_values' of row")
class PutImageHeightTakenForTokens(MemoryClient):
    """Treats an image as a padded column if its height equals the longest length, and cuts it."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict):
            fields = fields.copy()
            lengths = fields.get(INPUT_LENGTHS, None)
            for name, leaf in list(fields.items()) if lengths is not None else ():
                padded = isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.dim() > 2
                if padded and leaf.shape[1] == int(lengths.max()):
                    fields.set(name, nest([r[:n] for r, n in zip(leaf, lengths, strict=True)]))
        return super().put_samples(sample_ids, partition_id, fields, tags)
