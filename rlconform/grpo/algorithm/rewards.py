"""What is done to rewards before they are compared: scaling, and the price of length."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RewardScaling:
    """A linear map from one range of rewards to another; rewards outside are held to its ends.

    Attributes:
        source_min: Least reward of the task.
        source_max: Greatest one.
        target_min: What ``source_min`` becomes.
        target_max: What ``source_max`` becomes; below ``target_min`` turns the order around.

    Raises:
        ValueError: A bound that is not finite, or a source range without extent.
    """

    source_min: float = 0.0
    source_max: float = 1.0
    target_min: float = 0.0
    target_max: float = 1.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not math.isfinite(value):
                raise ValueError(f"{name} must be finite, got {value}")
        if not self.source_min < self.source_max:
            raise ValueError(
                f"source_min must lie below source_max, got {self.source_min} and {self.source_max}"
            )


@dataclass(frozen=True)
class OverlongPenalty:
    """The price of responses that come near the length limit.

    Attributes:
        max_response_length: Limit in tokens, L.
        overlong_buffer_length: The last B tokens before it, over which the price rises; 1 to L.
        overlong_buffer_penalty: Price P at the limit and beyond; DAPO's is 1.

    Raises:
        ValueError: A value out of range.
    """

    max_response_length: int
    overlong_buffer_length: int
    overlong_buffer_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.overlong_buffer_length <= self.max_response_length:
            raise ValueError(
                "overlong_buffer_length must be at least 1 and at most max_response_length, got "
                f"{self.overlong_buffer_length} and {self.max_response_length}"
            )
        if not 0 <= self.overlong_buffer_penalty < math.inf:
            raise ValueError(
                "overlong_buffer_penalty must be finite and not negative, got "
                f"{self.overlong_buffer_penalty}"
            )


def scale_rewards(rewards: Tensor, scaling: RewardScaling) -> Tensor:
    """Rewards on another range.

    ::

        s = (clip(r, source_min, source_max) - source_min) / (source_max - source_min)
        r' = target_min + s (target_max - target_min)

    As NeMo-RL's ``reward_scaling``. NaN stays NaN.

    Args:
        rewards: (N,) floating point.
        scaling: The two ranges.

    Returns:
        (N,) in the dtype of ``rewards``.
    """
    held = rewards.clamp(scaling.source_min, scaling.source_max)
    share = (held - scaling.source_min) / (scaling.source_max - scaling.source_min)
    return torch.lerp(
        torch.full_like(rewards, scaling.target_min),
        torch.full_like(rewards, scaling.target_max),
        share,
    )


def overlong_penalty(response_lengths: Tensor, penalty: OverlongPenalty) -> Tensor:
    """What a response of n tokens loses by its length.

    ::

        0                    n <= L - B
        P (L - B - n) / B    in between
        -P                   n >= L

    Soft overlong punishment of DAPO (Yu et al. 2025, arXiv 2503.14476), eq. 13.

    Args:
        response_lengths: (N,) generated tokens.
        penalty: L, B and P.

    Returns:
        (N,) float32, -P to 0.
    """
    free = penalty.max_response_length - penalty.overlong_buffer_length
    share = ((free - response_lengths) / penalty.overlong_buffer_length).clamp(-1, 0)
    return share * penalty.overlong_buffer_penalty


def shape_rewards(rewards: Tensor, response_lengths: Tensor, penalty: OverlongPenalty) -> Tensor:
    """Rewards with the ``overlong_penalty`` of their responses added.

    Args:
        rewards: (N,) floating point.
        response_lengths: (N,) generated tokens.
        penalty: The price of length.

    Returns:
        (N,) in the dtype of ``rewards``.

    Raises:
        ValueError: The two are not of one shape (N,).
    """
    if rewards.dim() != 1 or rewards.shape != response_lengths.shape:
        raise ValueError(
            f"rewards and response_lengths must be of one shape (N,), got {tuple(rewards.shape)} "
            f"and {tuple(response_lengths.shape)}"
        )
    return rewards + overlong_penalty(response_lengths, penalty).to(rewards)
