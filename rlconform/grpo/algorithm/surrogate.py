"""The policy-gradient term of the loss at each token: PPO's clipped ratio and its variants.

log pi, log pi_old ── policy_ratio ──▶ ratio per token or row
ratio, advantages ── surrogate ──▶ clipped (PPO, GRPO, GSPO) | CISPO | REINFORCE
"""

from __future__ import annotations

import torch
from torch import Tensor

from rlconform.grpo.algorithm.rollout_statistics import log_ratio
from rlconform.grpo.config import ClippedPGLossConfig


def policy_ratio(
    logprobs: Tensor, old_logprobs: Tensor, trained: Tensor, options: ClippedPGLossConfig
) -> Tensor:
    """Compute pi / pi_old, (B, T); both logprobs must be 0 at tokens that are not trained.

    ::

        r_t = pi(y_t) / pi_old(y_t)                        per token, or
        r_t = (prod_s pi(y_s) / pi_old(y_s))^(1 / |y|)     per row, the geometric mean (GSPO)

    Log ratios of tokens are clamped to +-20, where the gradient is 0. Sources: DeepSeekMath (arXiv
    2402.03300), eq. 3; GSPO (Zheng et al. 2025, arXiv 2507.18071), eq. 7.
    """
    gap = log_ratio(logprobs, old_logprobs)
    if options.sequence_level_importance_ratios:
        counts = trained.sum(dim=1, keepdim=True).clamp(min=1)
        gap = (gap.sum(dim=1, keepdim=True) / counts).expand_as(gap)
    return gap.exp()


def surrogate(
    logprobs: Tensor, ratio: Tensor, advantage: Tensor, options: ClippedPGLossConfig
) -> Tensor:
    """Compute the cost of each token, (B, T), with ratio r and advantage A.

    ::

        max(-A r, -A clip(r, 1 - clip_min, 1 + clip_max))              PPO
        the same, at most -A c where A < 0                             with dual clip
        -A stop_gradient(clip(r, 1 - clip_min, 1 + clip_max)) log pi   ``use_cispo``
        -A log pi                                                      ``disable_ppo_ratio``

    CISPO has a gradient at every token, the clip only bounds its weight. Sources: PPO (Schulman et
    al. 2017, arXiv 1707.06347), eq. 7; clip-higher: DAPO (arXiv 2503.14476), eq. 8; dual clip: Ye
    et al. 2020 (arXiv 1912.09729); CISPO: MiniMax-M1 (arXiv 2506.13585), eq. 4; REINFORCE: Ahmadian
    et al. 2024 (arXiv 2402.14740).
    """
    if options.disable_ppo_ratio:
        return -advantage * logprobs
    clipped = ratio.clamp(1 - options.ratio_clip_min, 1 + options.ratio_clip_max)
    if options.use_cispo:
        return -advantage * clipped.detach() * logprobs
    cost = torch.maximum(-advantage * ratio, -advantage * clipped)
    if options.ratio_clip_c is None:
        return cost
    most = -advantage * options.ratio_clip_c
    return torch.where(advantage < 0, torch.minimum(cost, most), cost)


def clipped_tokens(
    ratio: Tensor, advantage: Tensor, options: ClippedPGLossConfig
) -> dict[str, Tensor]:
    """Return (B, T) bool masks of the clipped tokens, by kind of clip.

    Under PPO these tokens have no gradient. Under CISPO their weight is clipped, for either sign of
    the advantage. Under REINFORCE none is clipped.
    """
    below, above = ratio < 1 - options.ratio_clip_min, ratio > 1 + options.ratio_clip_max
    if options.disable_ppo_ratio:
        below = above = torch.zeros_like(below)
    elif not options.use_cispo:
        below, above = (advantage < 0) & below, (advantage > 0) & above
    clipped = {"clipped_low": below, "clipped_high": above}
    if options.ratio_clip_c is not None:
        clipped["dual_clipped"] = (advantage < 0) & (ratio > options.ratio_clip_c)
    return clipped
