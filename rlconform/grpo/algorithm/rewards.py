"""Reward scaling and the penalty for overlong responses, applied before rewards are compared."""

from __future__ import annotations

import torch
from torch import Tensor

from rlconform.grpo.config import RewardScalingConfig, RewardShapingConfig


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
