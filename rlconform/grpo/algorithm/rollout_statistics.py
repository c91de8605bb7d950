"""Metrics of a run: KL estimates and statistics of a rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Log ratios of two policies are clamped to +- this bound: e^20 is 5e8, far above any ratio in
#: training and far below overflow.
LOG_RATIO_BOUND = 20.0


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Compute log(p / q), clamped to +-``LOG_RATIO_BOUND`` (gradient 0 there); NaN stays NaN."""
    return (numerator - denominator).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def k3(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """Estimate KL(p || q) by k3 from log p and log q of tokens that were sampled from p.

    ::

        k3 = q/p - log(q/p) - 1

    The estimate is unbiased, never negative, and 0 where p equals q. Source: Schulman 2020,
    "Approximating KL divergence"; as the penalty of GRPO: DeepSeekMath (arXiv 2402.03300), eq. 4.
    """
    log_q_over_p = log_ratio(other_logprobs, logprobs)
    return torch.expm1(log_q_over_p) - log_q_over_p


def rollout_metrics(
    rewards: Tensor, std: Tensor, response_lengths: Sequence[int], truncated: Tensor
) -> dict[str, float]:
    """Compute the metrics of a rollout of N rows; ``ValueError`` unless N >= 1.

    The arguments have N values each, but ``rewards`` only those of the rows that have one.
    ``std`` has for each row the std of its group, from ``advantages.group_baseline``. The metric
    ``zero_std`` is the share of rows in groups with equal rewards, ``truncated`` of truncated rows.
    """
    counts = {len(std), len(response_lengths), len(truncated)}
    if len(counts) > 1 or not 1 <= len(rewards) <= len(std):
        raise ValueError(
            f"expected N >= 1 values of each argument, and 1 to N rewards; got {sorted(counts)} "
            f"values and {len(rewards)} rewards"
        )
    return {
        "reward": rewards.double().mean().item(),
        "reward_min": rewards.min().item(),
        "reward_max": rewards.max().item(),
        "zero_std": (std == 0).double().mean().item(),
        "response_length": sum(response_lengths) / len(response_lengths),
        "response_length_max": float(max(response_lengths)),
        "truncated": truncated.bool().double().mean().item(),
    }
