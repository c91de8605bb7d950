"""Clients of ``ray_store`` whose jagged columns are whole in the owner and not elsewhere."""

from __future__ import annotations

from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store import TARGET as RIGHT
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.mutants import broken
from rlconform.mutants.values import mapped
from rlconform.mutants.values_jagged import from_offsets
from rlconform.wire.leaves import is_jagged, jagged_parts

breaks = partial(broken, RIGHT)


class _GivesElsewhere(RayStoreClient):
    """A client that alters the jagged columns which an attached process reads."""

    def given(self, leaf: Tensor) -> Tensor:
        """What a read gives of a jagged column."""
        raise NotImplementedError

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows."""
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if self._owner:
            return batch
        return mapped(batch, lambda leaf: self.given(leaf) if is_jagged(leaf) else leaf)


@breaks("PUT-05", "PUT-06", "PUT-07", says="to_padded_tensor")
class ForgetsTheLongestRowOnTheWay(_GivesElsewhere):
    """Columns reach another process as values and offsets: torch pads them to the sum of rows."""

    def given(self, leaf: Tensor) -> Tensor:
        """The column, built of its offsets alone."""
        return from_offsets(leaf)


@breaks("PUT-05", "PUT-06", "PUT-07", says="offsets()")
class GivesWholeMessages(_GivesElsewhere):
    """Messages have one size, and a column comes with all of the last one that carried it."""

    def given(self, leaf: Tensor) -> Tensor:
        """The column, with what was empty of the last message."""
        values, rows = jagged_parts(leaf)
        empty = values.new_zeros(8 - rows.total % 8, *values.shape[1:])
        return torch.nested.nested_tensor_from_jagged(
            torch.cat([values, empty]),
            rows.offsets,
            min_seqlen=rows.shortest,
            max_seqlen=rows.longest,
        )
