"""The policy-gradient loss of GRPO and its variants, normalised by the counts of the whole batch.

    logprobs, old, advantages ──▶ surrogate x importance weight ◀── old, engine
                                       + penalty x KL           ◀── logprobs, reference
                                       ──▶ weigh, sum

The weights contain the *global* normalisers. So the loss of a batch is the plain sum of the losses
of its parts, and the same holds for the gradients, over micro-batches as well as over ranks.
Without counts everything is a sum, which ``algorithm.normalisation`` divides after the last part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from rlconform.grpo.algorithm.importance_weights import importance_weights
from rlconform.grpo.algorithm.kl_penalty import kl_penalty
from rlconform.grpo.algorithm.masking import trained_tokens
from rlconform.grpo.algorithm.rollout_statistics import k3, log_ratio
from rlconform.grpo.algorithm.surrogate import clipped_tokens, policy_ratio, surrogate
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

    At each trained token, with the cost of ``surrogate``, the weight of ``importance_weights`` (1
    without correction) and the penalty of ``kl_penalty`` (0 if it is part of the rewards)::

        term_t = weight_t cost_t + penalty kl_t

        loss = sum_t term_t / valid_tokens                               token level
        loss = sum_i (sum_t term_it / |y_i|) / valid_samples             sequence level

    ``force_on_policy_ratio`` takes ``logprobs`` without gradient for ``old_logprobs``. Masked
    tokens have no influence, even if they are NaN. Log ratios are clamped to +-20, so that no term
    overflows; beyond that the gradient is 0. With correction, tokens whose engine logprob is not
    finite have weight 0. If no token is trained, the loss and its gradients are 0.

    Sources: sequence level: DeepSeekMath (arXiv 2402.03300), eq. 3; token level: DAPO (arXiv
    2503.14476), eq. 8.

    ``sample_mask`` is (B,), all other tensors (B, T), where column t belongs to the same token;
    only ``logprobs`` has a gradient. ``valid_tokens`` and ``valid_samples`` count the *whole*
    batch, over all ranks and micro-batches (``masking.count_valid``); with None for both, neither
    the loss nor the metrics are divided by them.

    Returns:
        The loss, a scalar in the dtype of ``logprobs``, and metrics by name, float64 scalars that
        add up over the parts of a batch. ``tokens``, ``samples`` and ``engine_unknown`` are counts;
        all others sum to the batch's value, per-token ones to the mean over its trained tokens:

        - ``policy_loss``, and with a reference ``kl_loss``: the terms of the loss;
        - ``ratio``; ``clipped_low``, ``clipped_high``, ``dual_clipped``: shares of clipped tokens,
          see ``clipped_tokens``;
        - ``entropy``: estimated by -log pi of the sampled tokens;
        - ``kl_from_old``: k3 of (pi_old, pi), and with a reference ``kl_to_reference``: k3 of (pi,
          pi_reference);
        - with engine logprobs ``engine_kl``: k3 of (pi_engine, pi_old), ``engine_prob_error``:
          exp |log pi_old - log pi_engine|, ``importance_weight``: pi_old / pi_engine before
          truncation, with truncation ``importance_truncated``: share of tokens outside the bounds,
          and ``engine_unknown``: the number of trained tokens whose engine logprob is not finite.

    Raises:
        ValueError: A shape differs; a term without its tensor; more trained tokens or rows than the
            counts of the whole batch.
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
    penalty = options.kl_penalty_in_loss
    needed = {
        "reference_logprobs": (penalty, reference_logprobs),
        "engine_logprobs": (options.use_importance_sampling_correction, engine_logprobs),
    }
    for name, (factor, values) in needed.items():
        if factor and values is None:
            raise ValueError(f"the options of the loss need {name}")

    # Masked first, so that a NaN at a masked token reaches neither values nor gradients.
    def constant(values: Tensor) -> Tensor:
        return torch.where(trained, values.detach().to(logprobs.dtype), 0)

    current, advantage = torch.where(trained, logprobs, 0), constant(advantages)
    old = current.detach() if options.force_on_policy_ratio else constant(old_logprobs)
    ratio = policy_ratio(current, old, trained, options)
    per_token = {"ratio": ratio, "entropy": -current, "kl_from_old": k3(old, current)}
    per_token |= clipped_tokens(ratio, advantage, options)

    cost = surrogate(current, ratio, advantage, options)
    counts = {"tokens": trained.sum(), "samples": trained.any(dim=1).sum()}
    engine = None if engine_logprobs is None else constant(engine_logprobs)
    if engine is not None:
        comparison = _compare_with_engine(old, engine, trained, options)
        per_token |= comparison.per_token
        counts["engine_unknown"] = comparison.unknown
        if options.use_importance_sampling_correction:
            cost = cost * comparison.weight

    weights = _normalising_weights(trained, options, valid_tokens, valid_samples).to(current)
    terms = {"policy_loss": (weights * cost).sum()}
    if reference_logprobs is not None:
        reference = constant(reference_logprobs)
        per_token["kl_to_reference"] = k3(current, reference)
        terms["kl_loss"] = (
            weights * (penalty * kl_penalty(current, reference, options, engine))
        ).sum()

    metrics = {name: count.double() for name, count in counts.items()}
    metrics |= {name: term.detach().double() for name, term in terms.items()}
    for name, values in per_token.items():
        total = torch.where(trained, values.detach(), 0).sum(dtype=torch.float64)
        metrics[name] = total / max(valid_tokens or 1, 1)
    return torch.stack(list(terms.values())).sum(), metrics


class _Comparison(NamedTuple):
    """The trainer's against the engine's logprobs."""

    per_token: dict[str, Tensor]  # (B, T) values by metric name
    weight: Tensor  # (B, T)
    unknown: Tensor  # scalar, the number of tokens without a finite engine logprob


def _compare_with_engine(
    old: Tensor, engine: Tensor, trained: Tensor, options: ClippedPGLossConfig
) -> _Comparison:
    importance = importance_weights(old, engine, trained, options)
    engine = torch.where(importance.unknown, old, engine)  # no difference, where none is known
    per_token = {
        "engine_kl": k3(engine, old),
        "engine_prob_error": log_ratio(old, engine).abs().exp(),
        "importance_weight": importance.ratio,
    }
    if options.truncated_importance_sampling_type is not None:
        per_token["importance_truncated"] = importance.outside
    return _Comparison(per_token, importance.weight, importance.unknown.sum())


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


def _check_shapes(trained: Tensor, given: Mapping[str, Tensor | None]) -> None:
    """Reject tensors that don't have the mask's shape, because broadcasting hides such errors."""
    for name, values in given.items():
        if values is not None and values.shape != trained.shape:
            raise ValueError(
                f"{name} must be {tuple(trained.shape)} like token_mask, got {tuple(values.shape)}"
            )
