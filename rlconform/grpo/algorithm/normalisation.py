"""Turns sums over an update's rows into its means: of the loss, its gradients and its metrics.

    policy_gradient_loss without counts, of each micro-batch ──▶ sums ──▶ over ranks
        loss_count(sums) ──▶ divides the gradients
        means_of(sums) ────▶ the update's metrics

While an update's rows arrive in chunks, their counts are known only after the last chunk. Until
then everything is a sum.
"""

from __future__ import annotations

from collections.abc import Mapping

from rlconform.grpo.config import ClippedPGLossConfig

#: Metrics of ``policy_gradient_loss`` that stay sums.
COUNTS = frozenset({"tokens", "samples", "engine_unknown"})


def loss_count(sums: Mapping[str, float], options: ClippedPGLossConfig) -> float:
    """Return the number of trained tokens (token level) or rows (sequence level), at least 1."""
    return max(sums["tokens" if options.token_level_loss else "samples"], 1.0)


def means_of(sums: Mapping[str, float], options: ClippedPGLossConfig) -> dict[str, float]:
    """Return the metrics of an update whose unnormalised metrics have these sums.

    ``loss`` and ``..._loss`` are divided by ``loss_count``, ``COUNTS`` are kept, and all others,
    which are sums over tokens, are divided by the number of trained tokens. Without trained tokens
    all are 0.
    """
    of_loss, tokens = loss_count(sums, options), max(sums["tokens"], 1.0)

    def mean(name: str, total: float) -> float:
        if name in COUNTS:
            return total
        return total / (of_loss if name.endswith("loss") else tokens)

    return {name: mean(name, total) for name, total in sums.items()}
