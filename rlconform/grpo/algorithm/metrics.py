"""What a run is watched by: KL estimates, entropy, and numbers of a rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

#: Log ratios of two policies are held to this distance from 0: e^20 is 5e8, far beyond any ratio
#: that is trained on, and far from overflow.
LOG_RATIO_BOUND = 20.0


def log_ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    """The log of p / q, from the logprobs of p and q, held to +-``LOG_RATIO_BOUND``.

    Beyond the bound the gradient is 0. NaN stays NaN.
    """
    return (numerator - denominator).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)


def k3(logprobs: Tensor, other_logprobs: Tensor) -> Tensor:
    """The k3 estimate of KL(p || q), token by token, for tokens that p sampled.

    ::

        k3 = q/p - log(q/p) - 1

    Never negative, 0 where p and q agree, and unbiased. Source: Schulman 2020, "Approximating KL
    divergence"; as the penalty of GRPO: DeepSeekMath (arXiv 2402.03300), eq. 4.

    Args:
        logprobs: log p of the tokens, any shape.
        other_logprobs: log q of the same tokens.
    """
    log_q_over_p = log_ratio(other_logprobs, logprobs)
    return torch.expm1(log_q_over_p) - log_q_over_p


def entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of the policy's distribution at each position.

    ::

        H = logsumexp(z) - sum_v softmax(z)_v z_v

    Args:
        logits: (..., V); -inf for tokens that can't be sampled.

    Returns:
        (...) in the dtype of ``logits``; 0 to log V.
    """
    logprobs = torch.log_softmax(logits, dim=-1)
    probabilities = logprobs.exp()
    # p log p is 0 at p = 0, where the product would be NaN.
    return -torch.where(probabilities > 0, probabilities * logprobs, 0).sum(dim=-1)


def rollout_statistics(
    rewards: Tensor, std: Tensor, response_lengths: Sequence[int], truncated: Tensor
) -> dict[str, float]:
    """Numbers of a rollout for the metrics file.

    Args:
        rewards: (N,).
        std: (N,) spread of each row's group, from ``advantages.group_baseline``.
        response_lengths: N counts of generated tokens.
        truncated: (N,) bool, true where no end of sequence was generated.

    Returns:
        ``reward``, ``reward_min``, ``reward_max``; ``zero_std``, share of rows of whose group
        nothing is learned; ``response_length``, ``response_length_max`` in tokens; ``truncated``,
        share of rows.

    Raises:
        ValueError: No row, or not N values of each.
    """
    counts = {len(rewards), len(std), len(response_lengths), len(truncated)}
    if len(counts) > 1 or not len(rewards):
        raise ValueError(f"as many values of each statistic are due, at least one, got {counts}")
    return {
        "reward": rewards.double().mean().item(),
        "reward_min": rewards.min().item(),
        "reward_max": rewards.max().item(),
        "zero_std": (std == 0).double().mean().item(),
        "response_length": sum(response_lengths) / len(response_lengths),
        "response_length_max": float(max(response_lengths)),
        "truncated": truncated.bool().double().mean().item(),
    }
