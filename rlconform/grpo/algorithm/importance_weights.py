"""Importance weights: they correct for tokens that the engine sampled with other probabilities.

    log pi_old, log pi_engine ── ratio per token or row ──▶ tis | icepop | seq-mask-tis ──▶ weights

Engine and trainer differ because of other kernels, older weights, or an error. An engine logprob
that is not finite gives no ratio: such tokens get weight 0 and are counted, because a ratio of e^20
would exceed all other terms of the loss.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from rlconform.grpo.algorithm.rollout_statistics import LOG_RATIO_BOUND, log_ratio
from rlconform.grpo.config import ClippedPGLossConfig


class ImportanceWeights(NamedTuple):
    """Importance weights of tokens; all tensors are (B, T)."""

    ratio: Tensor  # pi_old / pi_engine, before truncation; 0 at unknown tokens
    weight: Tensor  # after truncation
    outside: Tensor  # bool, trained tokens whose weight the truncation changed
    unknown: Tensor  # bool, trained tokens without a finite engine logprob


def importance_weights(
    old_logprobs: Tensor, engine_logprobs: Tensor, trained: Tensor, options: ClippedPGLossConfig
) -> ImportanceWeights:
    """Compute the weight of each token; no tensor has a gradient.

    With d_t = log pi_old(y_t) - log pi_engine(y_t) over the trained tokens of a row::

        w_t = exp(d_t)                    per token, or
        w_t = exp(sum_s d_s)              per row, with ``sequence_level_importance_ratios``

        tis            clip(w_t, low, high)
        icepop         w_t if low <= w_t <= high, else 0
        seq-mask-tis   w_t if low <= exp(mean_s d_s) <= high, else 0 for the whole row

    The bounds are ``truncated_importance_sampling_ratio_min`` and ``_ratio``. Log ratios are
    clamped to +-20. An unknown token has weight 0, and so has its whole row if the weight or the
    bounds concern rows.

    Sources: tis: Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training"; icepop: Ling team 2025, "Every step evolves" (arXiv 2510.18855); seq-mask-tis: Liu et
    al. 2025, "When speed kills stability". All tensors are (B, T).
    """
    unknown = trained & ~engine_logprobs.isfinite()
    known = trained & ~unknown
    old, engine = (torch.where(known, x.detach(), 0) for x in (old_logprobs, engine_logprobs))
    gap = log_ratio(old, engine)
    by_row = options.sequence_level_importance_ratios
    kind = options.truncated_importance_sampling_type
    dropped = unknown
    if by_row or kind == "seq-mask-tis":
        dropped = trained & unknown.any(dim=1, keepdim=True)

    total = gap.sum(dim=1, keepdim=True)
    bounded = total.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND).expand_as(gap) if by_row else gap
    ratio = torch.where(dropped if by_row else unknown, 0, bounded.exp())
    if kind is None:
        return ImportanceWeights(ratio, ratio, torch.zeros_like(trained), unknown)

    low, high = _bounds(options)
    held = ratio
    if kind == "seq-mask-tis":
        held = (total / trained.sum(dim=1, keepdim=True).clamp(min=1)).exp().expand_as(gap)
    outside = trained & ~dropped & ((held < low) | (held > high))
    truncated = ratio.clamp(low, high) if kind == "tis" else torch.where(outside, 0, ratio)
    return ImportanceWeights(ratio, torch.where(dropped, 0, truncated), outside, unknown)


def _bounds(options: ClippedPGLossConfig) -> tuple[float, float]:
    low = options.truncated_importance_sampling_ratio_min
    high = options.truncated_importance_sampling_ratio
    return 0.0 if low is None else low, math.inf if high is None else high
