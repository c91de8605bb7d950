"""The loss and its metrics, computed token by token in a loop."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from torch import Tensor

from rlconform.grpo.config import ClippedPGLossConfig

from .batches import ROWS, WIDTH, counts


def naive(batch: dict[str, Tensor], options: ClippedPGLossConfig) -> dict[str, float]:
    """Compute the docstrings' formulas token by token."""
    lists: dict[str, Any] = {name: values.tolist() for name, values in batch.items()}
    valid = counts(batch)
    found: Counter[str] = Counter()
    for row in range(ROWS):
        trained = [at for at in range(WIDTH) if lists["token_mask"][row][at]]
        if not lists["sample_mask"][row] or not trained:
            continue
        found["samples"] += 1
        share = 1 / len(trained) / valid["valid_samples"]
        if options.token_level_loss:
            share = 1 / valid["valid_tokens"]
        for at, token in zip(trained, tokens_of(lists, row, trained, options), strict=True):
            new, a = lists["logprobs"][row][at], lists["advantages"][row][at]
            cost = cost_of(new, token["ratio"], a, options)
            if options.use_importance_sampling_correction:
                cost *= token["weight"]
            found["policy_loss"] += share * cost
            if not options.use_kl_in_reward:
                found["kl_loss"] += share * options.reference_policy_kl_penalty * token["kl"]
            found["kl_loss"] += 0
            found["tokens"] += 1
            found["engine_unknown"] += 0
            low, high = 1 - options.ratio_clip_min, 1 + options.ratio_clip_max
            r, either = token["ratio"], options.use_cispo
            token |= {
                "clipped_low": (either or a < 0) and r < low and not options.disable_ppo_ratio,
                "clipped_high": (either or a > 0) and r > high and not options.disable_ppo_ratio,
                "dual_clipped": a < 0 and r > (options.ratio_clip_c or math.inf),
                "entropy": -new,
            }
            for name, value in token.items():
                found[name] += float(value) / valid["valid_tokens"]  # type: ignore[assignment]
    del found["kl"], found["weight"]
    return dict(found)


def tokens_of(
    lists: dict[str, Any], row: int, trained: list[int], options: ClippedPGLossConfig
) -> list[dict[str, float]]:
    """Ratio, weight, KL and comparisons of each trained token of a row."""
    new, old, reference, engine = (
        [lists[f"{name}logprobs"][row][at] for at in trained]
        for name in ("", "old_", "reference_", "engine_")
    )
    if options.force_on_policy_ratio:
        old = new
    ratios = [n - o for n, o in zip(new, old, strict=True)]
    gaps = [o - e for o, e in zip(old, engine, strict=True)]
    mean_gap = sum(gaps) / len(gaps)
    importances = gaps
    if options.sequence_level_importance_ratios:
        ratios = [sum(ratios) / len(ratios)] * len(ratios)
        importances = [sum(gaps)] * len(gaps)
    tokens = []
    for i in range(len(trained)):
        r, w = math.exp(ratios[i]), math.exp(importances[i])
        weight, outside = truncate(w, math.exp(mean_gap), options)
        ref_gap = reference[i] - new[i]
        kl = estimate(ref_gap, options)
        if options.use_on_policy_kl_approximation:
            kl *= math.exp(new[i] - engine[i])
        out = options.kl_output_clamp_value or math.inf
        tokens.append(
            {
                "ratio": r,
                "weight": weight,
                "kl": min(max(kl, -out), out),
                "kl_from_old": math.exp(new[i] - old[i]) - (new[i] - old[i]) - 1,
                "kl_to_reference": math.exp(ref_gap) - ref_gap - 1,
                "importance_weight": w,
                "importance_truncated": outside,
                "engine_kl": math.exp(gaps[i]) - gaps[i] - 1,
                "engine_prob_error": math.exp(abs(gaps[i])),
            }
        )
    return tokens


def cost_of(new: float, r: float, a: float, options: ClippedPGLossConfig) -> float:
    low, high = 1 - options.ratio_clip_min, 1 + options.ratio_clip_max
    if options.disable_ppo_ratio:
        return -a * new
    if options.use_cispo:
        return -a * min(max(r, low), high) * new
    cost = max(-a * r, -a * min(max(r, low), high))
    if options.ratio_clip_c is not None and a < 0:
        cost = min(cost, -a * options.ratio_clip_c)
    return cost


def truncate(w: float, of_row: float, options: ClippedPGLossConfig) -> tuple[float, bool]:
    kind = options.truncated_importance_sampling_type
    low = options.truncated_importance_sampling_ratio_min or 0.0
    high = options.truncated_importance_sampling_ratio or math.inf
    held = of_row if kind == "seq-mask-tis" else w
    if low <= held <= high:
        return w, False
    return (min(max(w, low), high) if kind == "tis" else 0.0), True


def estimate(gap: float, options: ClippedPGLossConfig) -> float:
    bound = options.kl_input_clamp_value or math.inf
    gap = min(max(gap, -bound), bound)
    of_type = {"k1": -gap, "k2": gap * gap / 2, "k3": math.exp(gap) - gap - 1}
    return of_type[options.reference_policy_kl_type]
