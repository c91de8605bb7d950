"""Rows of several rollouts as one padded batch in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.nn import functional

from rlconform.contract.fields import PER_TOKEN_FIELDS
from rlconform.grpo.rollout.worker import Rollout


def select_rows(
    rollouts: Sequence[Rollout],
    sample_ids: Sequence[str],
    width: int,
    pad_values: Mapping[str, int],
) -> TensorDict:
    """The named rows' tensors, in that order.

    Args:
        rollouts: Where the rows are, in whichever order; each as wide as its own longest row.
        sample_ids: N rows.
        width: Tokens that per-token columns are to have, S; no row named is longer.
        pad_values: By column, 0 where it names none.

    Returns:
        (N,) columns of the rollouts, (N, S, ...) the per-token ones.

    Raises:
        KeyError: A row that is in none of them.
    """
    parts = [_tensors(rollout, width, pad_values) for rollout in rollouts]
    every = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    ids = [sample_id for rollout in rollouts for sample_id in rollout.sample_ids]
    place = {sample_id: row for row, sample_id in enumerate(ids)}
    order = torch.tensor([place[sample_id] for sample_id in sample_ids])
    columns = {name: column[order] for name, column in every.items()}
    return TensorDict(columns, batch_size=[len(sample_ids)])


def _tensors(rollout: Rollout, width: int, pad_values: Mapping[str, int]) -> dict[str, Tensor]:
    return {
        name: _to_width(leaf, width, pad_values.get(name, 0)) if name in PER_TOKEN_FIELDS else leaf
        for name, leaf in rollout.columns.items()
        if isinstance(leaf, Tensor)
    }


def _to_width(column: Tensor, width: int, pad_value: int) -> Tensor:
    """(N, width): cut, where no row that is kept reaches so far, or padded."""
    cut = column[:, :width]
    return functional.pad(cut, (0, width - cut.shape[1]), value=pad_value)
