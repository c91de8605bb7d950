"""Joins rows of several rollouts into one padded batch in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn import functional

from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.grpo.rollout.worker import Rollout


def gather_rows(
    rollouts: Sequence[Rollout],
    sample_ids: Sequence[str],
    width: int,
    pad_values: Mapping[str, int],
) -> TensorDict:
    """Gather the tensors of the given rows from several rollouts.

    Args:
        rollouts: The rollouts, each padded to its own longest row.
        sample_ids: Ids of the N rows, in the order of the result.
        width: S, the width of per-token columns in the result; no selected row is longer.
        pad_values: Pad value by column; 0 for columns that are not listed.

    Returns:
        (N,) rows; per-token columns are (N, S, ...).

    Raises:
        KeyError: A row is in none of the rollouts.
    """
    parts = [_tensors(rollout, width, pad_values) for rollout in rollouts]
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    ids = [sample_id for rollout in rollouts for sample_id in rollout.sample_ids]
    row_of = {sample_id: row for row, sample_id in enumerate(ids)}
    order = torch.tensor([row_of[sample_id] for sample_id in sample_ids])
    columns = {name: column[order] for name, column in joined.items()}
    return TensorDict(columns, batch_size=[len(sample_ids)])


def _tensors(rollout: Rollout, width: int, pad_values: Mapping[str, int]) -> dict[str, Tensor]:
    return {
        name: _to_width(leaf, width, pad_values.get(name, 0)) if name in PER_TOKEN_FIELDS else leaf
        for name, leaf in rollout.columns.items()
        if isinstance(leaf, Tensor)
    }


def _to_width(column: Tensor, width: int, pad_value: int) -> Tensor:
    """Cut or pad a column to (N, width); only rows that are not selected lose tokens."""
    cut = column[:, :width]
    return functional.pad(cut, (0, width - cut.shape[1]), value=pad_value)
