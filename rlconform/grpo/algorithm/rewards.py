"""Which rewards are compared, their scaling, and the penalty for overlong responses.

rows of a group ── comparable_rows ──▶ those with a reward ── scale, shape ──▶ baseline, advantages
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from rlconform.grpo.config import RewardScalingConfig, RewardShapingConfig


def enough_rewards(rewarded: int, rows: int) -> bool:
    """Whether so many of a group's rows have a reward that these can be compared."""
    return rewarded >= min(2, rows)


def comparable_rows(groups: Sequence[str], rewarded: Sequence[bool]) -> Tensor:
    """Return a mask (N,) bool of the rows that have a reward, and company in their group.

    A row without a reward is left out of its group's baseline and gets no gradient. A group in
    which fewer than two rows are left has nothing to compare, so all its rows are left out.
    """
    rows, given = (
        Counter(groups),
        Counter(g for g, has in zip(groups, rewarded, strict=True) if has),
    )
    return torch.tensor(
        [
            has and enough_rewards(given[group], rows[group])
            for group, has in zip(groups, rewarded, strict=True)
        ],
        dtype=torch.bool,
    )


def scale_rewards(rewards: Tensor, scaling: RewardScalingConfig) -> Tensor:
    """Map rewards linearly from one range to another; rewards outside are clipped first.

    ::

        s = (clip(r, source_min, source_max) - source_min) / (source_max - source_min)
        r' = target_min + s (target_max - target_min)

    NaN stays NaN. The formula is that of NeMo-RL's ``reward_scaling``.
    """
    clipped = rewards.clamp(scaling.source_min, scaling.source_max)
    share = (clipped - scaling.source_min) / (scaling.source_max - scaling.source_min)
    return torch.lerp(
        torch.full_like(rewards, scaling.target_min),
        torch.full_like(rewards, scaling.target_max),
        share,
    )


def overlong_penalty(
    response_lengths: Tensor, shaping: RewardShapingConfig, max_response_length: int
) -> Tensor:
    """Compute the penalties of responses of n tokens; L is the limit, B the buffer before it.

    ::

        0                    n <= L - B
        P (L - B - n) / B    in between
        -P                   n >= L

    The result is (N,) float32; ``ValueError`` if B is above L. Source: soft overlong punishment of
    DAPO (Yu et al. 2025, arXiv 2503.14476), eq. 13.
    """
    buffer = shaping.overlong_buffer_length
    if buffer > max_response_length:
        raise ValueError(
            "overlong_buffer_length must be at most max_response_length, got "
            f"{buffer} and {max_response_length}"
        )
    share = ((max_response_length - buffer - response_lengths) / buffer).clamp(-1, 0)
    return share * shaping.overlong_buffer_penalty


def shape_rewards(
    rewards: Tensor,
    response_lengths: Tensor,
    shaping: RewardShapingConfig,
    max_response_length: int,
) -> Tensor:
    """Add ``overlong_penalty`` to each reward; ``ValueError`` if a tensor isn't (N,)."""
    if rewards.dim() != 1 or rewards.shape != response_lengths.shape:
        raise ValueError(
            f"rewards and response_lengths must have the same shape (N,), got "
            f"{tuple(rewards.shape)} and {tuple(response_lengths.shape)}"
        )
    return rewards + overlong_penalty(response_lengths, shaping, max_response_length).to(rewards)
