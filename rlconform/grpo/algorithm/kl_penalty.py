"""The KL penalty that keeps the policy near its reference: estimates, bounds and gradients.

    log p, log q ── clamp the log ratio ──▶ k1, k2 or k3 ── x sampling weight ── clamp ──▶ penalty

An estimate of the KL divergence from sampled tokens has the right value, but its gradient is not
the gradient of the divergence, because the tokens were sampled from the policy itself. A sampling
weight of value 1 adds the missing part.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rlconform.grpo.algorithm.rollout_statistics import log_ratio
from rlconform.grpo.config import ClippedPGLossConfig

#: By type, the estimate of KL(p || q) as a function of l = log q/p, for tokens sampled from p.
_ESTIMATES: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": torch.neg,
    "k2": lambda gap: gap.square() / 2,
    "k3": lambda gap: torch.expm1(gap) - gap,
}


def estimate_kl(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    options: ClippedPGLossConfig,
    weights: Tensor | float = 1.0,
) -> Tensor:
    """Estimate KL(p || q) per token from log p and log q, times ``weights``, within its bounds.

    With l = log q/p clamped to +-``kl_input_clamp_value``::

        k1 = -l        k2 = l^2 / 2        k3 = e^l - 1 - l

    The product is clamped to +-``kl_output_clamp_value``, because k3 of a rare token can exceed all
    other terms of a loss. Clamped values have no gradient. Source: Schulman 2020, "Approximating KL
    divergence". All tensors have the same shape; NaN stays NaN.
    """
    gap = _clamp(reference_logprobs - logprobs, options.kl_input_clamp_value)
    estimate = _ESTIMATES[options.reference_policy_kl_type](gap)
    return _clamp(weights * estimate, options.kl_output_clamp_value)


def kl_penalty(
    logprobs: Tensor,
    reference_logprobs: Tensor,
    options: ClippedPGLossConfig,
    engine_logprobs: Tensor | None = None,
) -> Tensor:
    """Compute the penalty of each token, (B, T), with the gradient that the options select.

    With p the policy, q the reference, e the generation engine, and k the estimate::

        direct      gradient of k                       DeepSeekMath (arXiv 2402.03300), eq. 4
        unbiased    gradient of k + k * gradient of log p
                    in expectation that of KL(p || q): Tang and Munos 2025 (arXiv 2506.09477)

    For k3 the former is 1 - q/p, which is in expectation the gradient of KL(q || p); the latter is
    log p/q. ``use_on_policy_kl_approximation`` weighs the estimate by p/e, since the tokens were
    sampled from e; tokens without a finite engine logprob have weight 0. Where the log ratio is
    clamped there is no gradient. ``ValueError`` if engine logprobs are needed but missing.
    """
    bound = options.kl_input_clamp_value
    inside = (reference_logprobs - logprobs).abs() <= (math.inf if bound is None else bound)
    if options.reference_policy_kl_gradient == "direct":
        inside = torch.zeros_like(inside)
    if not options.use_on_policy_kl_approximation:
        # Replaced first: where the log ratio is clamped, a logprob may be infinite.
        score = torch.where(inside, logprobs, 0)
        weights = (score - score.detach()).exp()
    elif engine_logprobs is None:
        raise ValueError("use_on_policy_kl_approximation needs engine_logprobs")
    else:
        known = engine_logprobs.isfinite()
        score = torch.where(inside, logprobs, logprobs.detach())
        weights = log_ratio(score, torch.where(known, engine_logprobs, 0)).exp()
        weights = torch.where(known, weights, 0)
    return estimate_kl(logprobs, reference_logprobs, options, weights)


def _clamp(values: Tensor, bound: float | None) -> Tensor:
    return values if bound is None else values.clamp(-bound, bound)
