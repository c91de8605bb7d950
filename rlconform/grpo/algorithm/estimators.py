"""Advantage estimators: from the rewards of a step's rows to the advantages of their tokens.

    rewards (N,), groups, components ── grpo | gdpo | reinforce_plus_plus ──▶ (N, S) ── clip ──▶

All rows of a group must be present, since the estimators compare a row with its group. Rows without
a reward are compared with none, and have advantage 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from rlconform.grpo.algorithm.advantages import (
    broadcast_to_tokens,
    compute_advantages,
    group_baseline,
)
from rlconform.grpo.config import GRPOConfig

#: Advantages of ``gdpo`` with a smaller std are equal up to rounding.
_LEAST_STD = 1e-6
#: Smallest variance that ``reinforce_plus_plus`` divides by.
_LEAST_VARIANCE = 1e-8


class ScoredRows(NamedTuple):
    """What the estimators read of a step's N rows of S tokens."""

    rewards: Tensor  # (N,) float
    groups: Sequence[str]  # N names, equal for the rows of a prompt
    token_mask: Tensor  # (N, S), 1 at the policy's tokens
    sample_mask: Tensor  # (N,), 0 for rows that are not trained
    components: Mapping[str, Tensor] = {}  # parts of the reward by name, (N,) each, for ``gdpo``
    kl: Tensor | None = None  # (N, S), penalty x KL, if it is part of the reward
    #: (N,) bool, false for rows that have no reward to compare; by default all rows have one.
    comparable: Tensor | None = None


def estimate_advantages(rows: ScoredRows, config: GRPOConfig) -> Tensor:
    """Compute advantages with ``adv_estimator``, clipped to their bounds; (N, S), 0 if masked.

    ``ValueError`` if a shape differs, or the rows lack what the estimator needs.
    """
    advantages = _ESTIMATORS[config.adv_estimator.name](rows, config)
    if rows.comparable is not None:
        advantages = torch.where(rows.comparable.unsqueeze(1), advantages, 0)
    low, high = config.advantage_clip_low, config.advantage_clip_high
    if low is not None or high is not None:
        clipped = advantages.clamp(low, high)
        kept = rows.token_mask.bool() & _comparable(rows).unsqueeze(1)
        advantages = torch.where(kept, clipped, 0)  # a bound may exclude 0
    return advantages


def grpo(rows: ScoredRows, config: GRPOConfig) -> Tensor:
    """Compare each reward with its group: ``group_baseline`` and ``compute_advantages``.

    Source: DeepSeekMath (arXiv 2402.03300), section 4.1.2.
    """
    return broadcast_to_tokens(_in_group(rows.rewards, rows, config), rows.token_mask)


def gdpo(rows: ScoredRows, config: GRPOConfig) -> Tensor:
    """Compare each component of the reward with its group, then normalise the weighted sum.

    ::

        B_i = sum_k weight_k A_ik          A_ik: the advantage of ``grpo`` for component k
        A_i = (B_i - mean(B)) / std(B)     over all rows with a reward, 0 if std(B) <= 1e-6

    If the components are added first, as in GRPO, different combinations of them can give the same
    advantage. Source: GDPO (Liu et al. 2026, arXiv 2601.05242). ``ValueError`` for fewer than two
    components, or another number of ``reward_weights``.
    """
    names = sorted(rows.components)
    given = config.adv_estimator.reward_weights
    weights = [1.0] * len(names) if given is None else given
    if len(names) < 2:
        raise ValueError(
            f"grpo.adv_estimator.name gdpo needs rewards with at least 2 components, got {names}; "
            "grpo needs none"
        )
    if len(weights) != len(names):
        raise ValueError(f"{len(weights)} reward_weights for the reward's components {names}")
    total = torch.zeros_like(rows.rewards)
    for name, weight in zip(names, weights, strict=True):
        total += weight * _in_group(rows.components[name], rows, config)
    compared = total[_comparable(rows)]
    centred, std = total - compared.mean(), compared.std()
    normalised = centred / std if std > _LEAST_STD else torch.zeros_like(total)
    return broadcast_to_tokens(normalised, rows.token_mask)


def reinforce_plus_plus(rows: ScoredRows, config: GRPOConfig) -> Tensor:
    """Normalise rewards over all trained tokens of the step, with the KL penalty as a cost.

    ::

        B_it = r_i - m_i - sum_{s >= t} penalty KL_is
        A_it = (B_it - mean(B)) / sqrt(max(var(B), 1e-8))     over all trained tokens

    The mean m_i of the group is subtracted with ``minus_baseline``, the KL with
    ``use_kl_in_reward``: a token causes the penalties of all later tokens too. Source: REINFORCE++
    (Hu et al. 2025, arXiv 2501.03262), eq. 8 to 10. Without trained tokens the result is 0.
    """
    mask = rows.token_mask.bool()
    trained = mask & (rows.sample_mask.bool() & _comparable(rows)).unsqueeze(1)
    rewards = rows.rewards
    if config.adv_estimator.minus_baseline:
        rewards = rewards - group_baseline(rewards, rows.groups, counted=rows.comparable)[0]
    raw = broadcast_to_tokens(rewards, mask).double()
    if rows.kl is not None:
        cost = torch.where(mask, rows.kl, 0).double()
        raw = raw - cost.flip(1).cumsum(dim=1).flip(1)
    count = max(int(trained.sum()), 1)
    centred = raw - torch.where(trained, raw, 0).sum() / count
    variance = torch.where(trained, centred, 0).square().sum() / count
    normalised = centred / variance.clamp(min=_LEAST_VARIANCE).sqrt()
    return torch.where(trained, normalised, 0).to(rows.rewards)


_ESTIMATORS: dict[str, Callable[[ScoredRows, GRPOConfig], Tensor]] = {
    "grpo": grpo,
    "gdpo": gdpo,
    "reinforce_plus_plus": reinforce_plus_plus,
}


def _comparable(rows: ScoredRows) -> Tensor:
    if rows.comparable is None:
        return torch.ones_like(rows.rewards, dtype=torch.bool)
    return rows.comparable


def _in_group(rewards: Tensor, rows: ScoredRows, config: GRPOConfig) -> Tensor:
    baseline, std = group_baseline(
        rewards, rows.groups, config.leaves_one_out, counted=rows.comparable
    )
    return compute_advantages(rewards, baseline, std, config.normalizes_rewards)
