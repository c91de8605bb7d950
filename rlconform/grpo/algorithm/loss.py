"""The clipped policy-gradient loss of GRPO, normalised by the counts of the whole batch.

    logprobs, old, engine, advantages ──▶ surrogate: clip, dual clip, truncated IS ─┐
    logprobs, reference ────────────────▶ penalty x KL (k3) ────────────────────────┴─▶ weigh, sum

The weights contain the *global* normalisers. So the loss of a batch is the plain sum of the losses
of its parts, and the same holds for the gradients, over micro-batches as well as over ranks.
Without counts everything is a sum, which ``algorithm.normalisation`` divides after the last part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from rlconform.grpo.algorithm.masking import trained_tokens
from rlconform.grpo.algorithm.rollout_statistics import k3, log_ratio
from rlconform.grpo.config import ClippedPGLossConfig


def policy_gradient_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    advantages: Tensor,
    token_mask: Tensor,
    sample_mask: Tensor,
    options: ClippedPGLossConfig,
    *,
    valid_tokens: int | None,
    valid_samples: int | None,
    engine_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the loss of some rows of a batch, and their share of the batch's metrics.

    With ratio r_t = pi(y_t) / pi_old(y_t), at each trained token::

        surrogate_t = max(-A_t r_t, -A_t clip(r_t, 1 - clip_min, 1 + clip_max))
        surrogate_t = min(surrogate_t, -A_t c)      where A_t < 0, with dual clip
        weight_t    = min(pi_old(y_t) / pi_engine(y_t), bound)   no gradient; 1 without correction
        term_t      = weight_t surrogate_t + penalty k3(pi, pi_reference)_t

        loss = sum_t term_t / valid_tokens                               token level
        loss = sum_i (sum_t term_it / |y_i|) / valid_samples             sequence level

    Masked tokens have no influence, even if they are NaN. Log ratios are clamped to +-20, so that
    no term overflows; beyond that the gradient is 0. If no token is trained, the loss and its
    gradients are 0.

    Sources: clip: PPO (Schulman et al. 2017, arXiv 1707.06347), eq. 7; dual clip: Ye et al. 2020
    (arXiv 1912.09729); KL and sequence level: DeepSeekMath (arXiv 2402.03300), eq. 3 and 4;
    token level and clip-higher: DAPO (arXiv 2503.14476), eq. 8; truncated importance sampling: Yao
    et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".

    ``sample_mask`` is (B,), all other tensors (B, T), where column t belongs to the same token;
    only ``logprobs`` has a gradient. ``valid_tokens`` and ``valid_samples`` count the *whole*
    batch, over all ranks and micro-batches (``masking.count_valid``); with None for both, neither
    the loss nor the metrics are divided by them.

    Returns:
        The loss, a scalar in the dtype of ``logprobs``, and metrics by name, float64 scalars that
        add up over the parts of a batch. ``tokens`` and ``samples`` are counts; all others sum to
        the batch's value, per-token ones to the mean over its trained tokens:

        - ``policy_loss``, and with a reference ``kl_loss``: the terms of the loss;
        - ``ratio``; ``clipped_low``, ``clipped_high``, ``dual_clipped``: shares of tokens that have
          no gradient because of the clip;
        - ``entropy``: estimated by -log pi of the sampled tokens;
        - ``kl_from_old``: k3 of (pi_old, pi), and with a reference ``kl_to_reference``: k3 of (pi,
          pi_reference);
        - with engine logprobs ``engine_kl``: k3 of (pi_engine, pi_old), ``engine_prob_error``:
          exp |log pi_old - log pi_engine|, ``importance_weight``: pi_old / pi_engine before
          truncation, and with a bound ``importance_truncated``: share of tokens above it.

    Raises:
        ValueError: A shape differs; a penalty without a reference; a correction without engine
            logprobs; more trained tokens or rows than ``valid_tokens`` and ``valid_samples``.
    """
    trained = trained_tokens(token_mask, sample_mask)
    given = {
        "logprobs": logprobs,
        "old_logprobs": old_logprobs,
        "reference_logprobs": reference_logprobs,
        "advantages": advantages,
        "engine_logprobs": engine_logprobs,
    }
    _check_shapes(trained, given)
    if reference_logprobs is None and options.reference_policy_kl_penalty:
        raise ValueError("reference_policy_kl_penalty needs reference_logprobs")
    if engine_logprobs is None and options.use_importance_sampling_correction:
        raise ValueError("use_importance_sampling_correction needs engine_logprobs")

    # Masked first, so that a NaN at a masked token reaches neither values nor gradients.
    def constant(values: Tensor) -> Tensor:
        return torch.where(trained, values.detach().to(logprobs.dtype), 0)

    current = torch.where(trained, logprobs, 0)
    old, advantage = constant(old_logprobs), constant(advantages)
    ratio = log_ratio(current, old).exp()
    per_token = {"ratio": ratio, "entropy": -current, "kl_from_old": k3(old, current)}
    per_token |= _clipped(ratio, advantage, options)

    surrogate = _clipped_surrogate(ratio, advantage, options)
    if engine_logprobs is not None:
        engine = constant(engine_logprobs)
        importance = log_ratio(old, engine).exp()
        per_token |= _engine_gap(old, engine, importance, options)
        if options.use_importance_sampling_correction:
            bound = options.truncated_importance_sampling_ratio
            surrogate = surrogate * importance.clamp(max=math.inf if bound is None else bound)

    weights = _normalising_weights(trained, options, valid_tokens, valid_samples).to(current)
    terms = {"policy_loss": (weights * surrogate).sum()}
    if reference_logprobs is not None:
        per_token["kl_to_reference"] = k3(current, constant(reference_logprobs))
        penalty = options.reference_policy_kl_penalty * per_token["kl_to_reference"]
        terms["kl_loss"] = (weights * penalty).sum()

    metrics = {
        "tokens": trained.sum(dtype=torch.float64),
        "samples": trained.any(dim=1).sum(dtype=torch.float64),
    }
    metrics |= {name: term.detach().double() for name, term in terms.items()}
    for name, values in per_token.items():
        total = torch.where(trained, values.detach(), 0).sum(dtype=torch.float64)
        metrics[name] = total / max(valid_tokens or 1, 1)
    return torch.stack(list(terms.values())).sum(), metrics


def _normalising_weights(
    trained: Tensor,
    options: ClippedPGLossConfig,
    valid_tokens: int | None,
    valid_samples: int | None,
) -> Tensor:
    """Return each token's weight in the loss, (B, T) float64; a whole batch's weights sum to 1."""
    of_row = trained.sum(dim=1, keepdim=True)
    weights = trained.double()
    if not options.token_level_loss:
        weights = weights / of_row.clamp(min=1)
    if valid_tokens is None or valid_samples is None:
        return weights
    tokens, samples = int(of_row.sum()), int((of_row > 0).sum())
    if tokens > valid_tokens or samples > valid_samples:
        raise ValueError(
            f"expected at most the whole batch's counts, {valid_tokens} trained tokens in "
            f"{valid_samples} rows; got {tokens} in {samples}"
        )
    return weights / max(valid_tokens if options.token_level_loss else valid_samples, 1)


def _clipped_surrogate(ratio: Tensor, advantage: Tensor, options: ClippedPGLossConfig) -> Tensor:
    """Compute PPO's clipped surrogate as a cost, (B, T), with the dual clip."""
    clipped = ratio.clamp(1 - options.ratio_clip_min, 1 + options.ratio_clip_max)
    cost = torch.maximum(-advantage * ratio, -advantage * clipped)
    if options.ratio_clip_c is None:
        return cost
    most = -advantage * options.ratio_clip_c
    return torch.where(advantage < 0, torch.minimum(cost, most), cost)


def _clipped(ratio: Tensor, advantage: Tensor, options: ClippedPGLossConfig) -> dict[str, Tensor]:
    """Return (B, T) bool masks, by kind of clip, of the tokens whose gradient the clip removes."""
    flat = {
        "clipped_low": (advantage < 0) & (ratio < 1 - options.ratio_clip_min),
        "clipped_high": (advantage > 0) & (ratio > 1 + options.ratio_clip_max),
    }
    if options.ratio_clip_c is not None:
        flat["dual_clipped"] = (advantage < 0) & (ratio > options.ratio_clip_c)
    return flat


def _engine_gap(
    old: Tensor, engine: Tensor, importance: Tensor, options: ClippedPGLossConfig
) -> dict[str, Tensor]:
    """Compare the trainer's with the engine's logprobs; return (B, T) values by metric name."""
    gap = {
        "engine_kl": k3(engine, old),
        "engine_prob_error": log_ratio(old, engine).abs().exp(),
        "importance_weight": importance,
    }
    if options.truncated_importance_sampling_ratio is not None:
        gap["importance_truncated"] = importance > options.truncated_importance_sampling_ratio
    return gap


def _check_shapes(trained: Tensor, given: Mapping[str, Tensor | None]) -> None:
    """Reject tensors that don't have the mask's shape, because broadcasting hides such errors."""
    for name, values in given.items():
        if values is not None and values.shape != trained.shape:
            raise ValueError(
                f"{name} must be {tuple(trained.shape)} like token_mask, got {tuple(values.shape)}"
            )
