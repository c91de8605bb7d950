"""The clipped policy-gradient loss of GRPO, normalised by counts of the whole batch.

    logprobs, old, engine, advantages ──▶ surrogate: clip, dual clip, truncated IS ─┐
    logprobs, reference ────────────────▶ penalty x KL (k3) ────────────────────────┴─▶ weigh, sum

The weights hold the *global* normalisers, so that the loss of a batch is the plain sum of the
losses of its parts, and so are its gradients: over micro-batches they accumulate, over ranks they
are summed. DDP and FSDP average over ranks, so that a worker multiplies by their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rlconform.grpo.algorithm.masking import trained_tokens
from rlconform.grpo.algorithm.metrics import k3, log_ratio


@dataclass(frozen=True)
class LossOptions:
    """Terms of the loss, under NeMo-RL's names.

    Attributes:
        ratio_clip_min: The ratio is clipped below at ``1 - ratio_clip_min``; 0 to 1.
        ratio_clip_max: The ratio is clipped above at ``1 + ratio_clip_max``; more than
            ``ratio_clip_min`` is DAPO's clip-higher.
        ratio_clip_c: Dual clip: with a negative advantage A no token costs more than ``-c A``;
            above 1, or None for no bound.
        reference_policy_kl_penalty: Weight of the KL to the reference policy; 0 leaves it out.
        token_level_loss: Each token weighs the same (DAPO); else each row does, whatever its
            length (GRPO).
        use_importance_sampling_correction: Weigh tokens by pi_old / pi_engine, for data that the
            engine generated with other kernels or older weights.
        truncated_importance_sampling_ratio: Most that such a weight may be; None for no bound.

    Raises:
        ValueError: A value out of range; the message names it.
    """

    ratio_clip_min: float = 0.2
    ratio_clip_max: float = 0.2
    ratio_clip_c: float | None = None
    reference_policy_kl_penalty: float = 0.0
    token_level_loss: bool = True
    use_importance_sampling_correction: bool = False
    truncated_importance_sampling_ratio: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.ratio_clip_min <= 1:
            raise ValueError(f"ratio_clip_min must lie in 0 to 1, got {self.ratio_clip_min}")
        if not self.ratio_clip_max >= 0:
            raise ValueError(f"ratio_clip_max must not be negative, got {self.ratio_clip_max}")
        if self.ratio_clip_c is not None and not self.ratio_clip_c > 1:
            raise ValueError(f"ratio_clip_c must be above 1, got {self.ratio_clip_c}")
        if not self.reference_policy_kl_penalty >= 0:
            raise ValueError(
                "reference_policy_kl_penalty must not be negative, got "
                f"{self.reference_policy_kl_penalty}"
            )
        bound = self.truncated_importance_sampling_ratio
        if bound is not None and not bound > 0:
            raise ValueError(f"truncated_importance_sampling_ratio must be positive, got {bound}")
        if bound is not None and not self.use_importance_sampling_correction:
            raise ValueError(
                "truncated_importance_sampling_ratio bounds the weights of "
                "use_importance_sampling_correction, which is off"
            )


def policy_gradient_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    reference_logprobs: Tensor | None,
    advantages: Tensor,
    token_mask: Tensor,
    sample_mask: Tensor,
    options: LossOptions,
    *,
    valid_tokens: int,
    valid_samples: int,
    engine_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of some rows of a batch, and their share of its metrics.

    With ratio r_t = pi(y_t) / pi_old(y_t), at each trained token::

        surrogate_t = max(-A_t r_t, -A_t clip(r_t, 1 - clip_min, 1 + clip_max))
        surrogate_t = min(surrogate_t, -A_t c)      where A_t < 0, with dual clip
        weight_t    = min(pi_old(y_t) / pi_engine(y_t), bound)   no gradient; 1 without correction
        term_t      = weight_t surrogate_t + penalty k3(pi, pi_reference)_t

        loss = sum_t term_t / valid_tokens                               token level
        loss = sum_i (sum_t term_it / |y_i|) / valid_samples             sequence level

    What is masked takes no part, be it NaN. A log ratio is held to +-20, beyond which its gradient
    is 0: no term overflows. If nothing is trained the loss is 0, and so are its gradients.

    Sources: clip: PPO (Schulman et al. 2017, arXiv 1707.06347), eq. 7; dual clip: Ye et al. 2020
    (arXiv 1912.09729); KL and sequence level: DeepSeekMath (arXiv 2402.03300), eq. 3 and 4;
    token level and clip-higher: DAPO (arXiv 2503.14476), eq. 8; truncated importance sampling: Yao
    et al. 2025, "Your efficient RL framework secretly brings you off-policy RL training".

    Args:
        logprobs: (B, T) of the policy that is trained, the only argument with a gradient; column t
            of all arguments speaks of the same token.
        old_logprobs: (B, T) of the policy before the step.
        reference_logprobs: (B, T) of the reference policy, or None without a penalty.
        advantages: (B, T).
        token_mask: (B, T), not 0 at the tokens that are trained.
        sample_mask: (B,), 0 drops a row.
        options: Which terms there are.
        valid_tokens: Trained tokens of the *whole* batch, all ranks' and micro-batches', from
            ``masking.count_valid``.
        valid_samples: Rows of the whole batch with a trained token, likewise.
        engine_logprobs: (B, T) as generated; needed for the importance-sampling correction, and
            measured against when given.

    Returns:
        The loss, a scalar in the dtype of ``logprobs``; and float64 scalars by name, which add up
        over the parts of a batch: ``tokens`` and ``samples`` to counts, all others to the batch's
        value, per-token ones to the average over its trained tokens:

        - ``policy_loss``, and with a reference ``kl_loss``: the terms of the loss;
        - ``ratio``; ``clipped_low``, ``clipped_high``, ``dual_clipped``: shares of tokens whose
          gradient the clip took away;
        - ``entropy``: estimated by -log pi of the tokens that were sampled;
        - ``kl_from_old``: k3 of (pi_old, pi), and with a reference ``kl_to_reference``: k3 of (pi,
          pi_reference);
        - with engine logprobs ``engine_kl``: k3 of (pi_engine, pi_old), ``engine_prob_error``:
          exp |log pi_old - log pi_engine|, ``importance_weight``: pi_old / pi_engine, and with a
          bound, to which the loss cuts it, ``importance_truncated``: share of tokens above it.

    Raises:
        ValueError: A tensor of another shape; no reference with a penalty; no engine logprobs with
            a correction; more trained tokens or rows than the whole batch is said to have.
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

    # Masked before anything is computed: what lies there reaches neither values nor gradients.
    def constant(values: Tensor) -> Tensor:
        return torch.where(trained, values.detach().to(logprobs.dtype), 0)

    current = torch.where(trained, logprobs, 0)
    old, advantage = constant(old_logprobs), constant(advantages)
    ratio = log_ratio(current, old).exp()
    watched = {"ratio": ratio, "entropy": -current, "kl_from_old": k3(old, current)}
    watched |= _clipped(ratio, advantage, options)

    surrogate = _clipped_surrogate(ratio, advantage, options)
    if engine_logprobs is not None:
        engine = constant(engine_logprobs)
        importance = log_ratio(old, engine).exp()
        watched |= _engine_gap(old, engine, importance, options)
        if options.use_importance_sampling_correction:
            surrogate = surrogate * importance.clamp(max=_bound(options))

    weights = _normalising_weights(trained, options, valid_tokens, valid_samples).to(current)
    terms = {"policy_loss": (weights * surrogate).sum()}
    if reference_logprobs is not None:
        watched["kl_to_reference"] = k3(current, constant(reference_logprobs))
        penalty = options.reference_policy_kl_penalty * watched["kl_to_reference"]
        terms["kl_loss"] = (weights * penalty).sum()

    metrics = {
        "tokens": trained.sum(dtype=torch.float64),
        "samples": trained.any(dim=1).sum(dtype=torch.float64),
    }
    metrics |= {name: term.detach().double() for name, term in terms.items()}
    for name, values in watched.items():
        total = torch.where(trained, values.detach(), 0).sum(dtype=torch.float64)
        metrics[name] = total / max(valid_tokens, 1)
    return torch.stack(list(terms.values())).sum(), metrics


def _normalising_weights(
    trained: Tensor, options: LossOptions, valid_tokens: int, valid_samples: int
) -> Tensor:
    """(B, T) float64: what each token counts in the loss; over the whole batch they sum to 1."""
    of_row = trained.sum(dim=1, keepdim=True)
    tokens, samples = int(of_row.sum()), int((of_row > 0).sum())
    if tokens > valid_tokens or samples > valid_samples:
        raise ValueError(
            f"{tokens} tokens in {samples} rows are trained here, and the whole batch is said to "
            f"have {valid_tokens} in {valid_samples}"
        )
    if options.token_level_loss:
        return trained.double() / max(valid_tokens, 1)
    return trained.double() / of_row.clamp(min=1) / max(valid_samples, 1)


def _clipped_surrogate(ratio: Tensor, advantage: Tensor, options: LossOptions) -> Tensor:
    """(B, T): PPO's clipped surrogate as a cost, with the dual clip."""
    clipped = ratio.clamp(1 - options.ratio_clip_min, 1 + options.ratio_clip_max)
    cost = torch.maximum(-advantage * ratio, -advantage * clipped)
    if options.ratio_clip_c is None:
        return cost
    most = -advantage * options.ratio_clip_c
    return torch.where(advantage < 0, torch.minimum(cost, most), cost)


def _clipped(ratio: Tensor, advantage: Tensor, options: LossOptions) -> dict[str, Tensor]:
    """(B, T) bool each: where the surrogate is flat, so that the token has no gradient."""
    flat = {
        "clipped_low": (advantage < 0) & (ratio < 1 - options.ratio_clip_min),
        "clipped_high": (advantage > 0) & (ratio > 1 + options.ratio_clip_max),
    }
    if options.ratio_clip_c is not None:
        flat["dual_clipped"] = (advantage < 0) & (ratio > options.ratio_clip_c)
    return flat


def _engine_gap(
    old: Tensor, engine: Tensor, importance: Tensor, options: LossOptions
) -> dict[str, Tensor]:
    """(B, T) each: how far the trainer is from the engine that generated the tokens."""
    gap = {
        "engine_kl": k3(engine, old),
        "engine_prob_error": log_ratio(old, engine).abs().exp(),
        "importance_weight": importance,
    }
    if options.truncated_importance_sampling_ratio is not None:
        gap["importance_truncated"] = importance > _bound(options)
    return gap


def _bound(options: LossOptions) -> float:
    """Most that an importance weight may be."""
    bound = options.truncated_importance_sampling_ratio
    return math.inf if bound is None else bound


def _check_shapes(trained: Tensor, given: Mapping[str, Tensor | None]) -> None:
    """Broadcasting would hide a column of another shape."""
    for name, values in given.items():
        if values is not None and values.shape != trained.shape:
            raise ValueError(
                f"{name} must be {tuple(trained.shape)} as token_mask is, got {tuple(values.shape)}"
            )
