"""Jagged columns that are correct in the owner or writer and wrong in other processes."""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.mutants.memory.column_helpers import from_offsets, mapped
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.ray_store.race_helpers import AlteredForeignRows
from rlconform.mutants.types import Ids, Names
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged, jagged_parts


class _GivesElsewhere(RayStoreClient):
    """A client that alters the jagged columns that an attached process reads."""

    def given(self, leaf: Tensor) -> Tensor:
        """Return the altered jagged column."""
        raise NotImplementedError

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if self._owner:
            return batch
        return mapped(batch, lambda leaf: self.given(leaf) if is_jagged(leaf) else leaf)


@ray_mutant("PUT-05", "PUT-06", "PUT-07", evidence="to_padded_tensor")
class AttachedGetJaggedMaxMissing(_GivesElsewhere):
    """Sends only values and offsets: torch pads to the sum of the lengths, not to the maximum."""

    def given(self, leaf: Tensor) -> Tensor:
        return from_offsets(leaf)


@ray_mutant("PUT-05", "PUT-06", "PUT-07", evidence="offsets()")
class AttachedGetJaggedWithWholeMessage(_GivesElsewhere):
    """Sends messages of a fixed size and returns the unused end of the last one as values."""

    def given(self, leaf: Tensor) -> Tensor:
        values, rows = jagged_parts(leaf)
        empty = values.new_zeros(8 - rows.total % 8, *values.shape[1:])
        return torch.nested.nested_tensor_from_jagged(
            torch.cat([values, empty]),
            rows.offsets,
            min_seqlen=rows.shortest,
            max_seqlen=rows.longest,
        )


@ray_mutant("PUT-06", "PUT-07", evidence="row")
class AttachedGetEmptyRowsFilled(AlteredForeignRows):
    """Fills empty rows of other processes with a zero, because a message can't be empty."""

    def arrived(self, leaf: Tensor) -> Tensor:
        if not is_jagged(leaf):
            return leaf
        rows = [row if len(row) else row.new_zeros(1, *row.shape[1:]) for row in rows_of(leaf)]
        return stack_or_nest(rows)
