"""What a step has computed: tokens and floating-point operations, and how much of the peak.

    rows and updates of a step, seconds of its training ──▶ performance ──▶ metrics ``perf/...``

``workers.flops`` counts the operations, for dense models and for mixtures of experts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlconform.contract import KVBatchMeta


def performance(
    meta: KVBatchMeta, updates: Sequence[Mapping[str, float]], seconds: float | None = None
) -> dict[str, float]:
    """Return the metrics of a step.

    Args:
        meta: The rows that were trained on, with their lengths.
        updates: The metrics of each update, see ``PolicyModel.finish_train_step``.
        seconds: How long the stage ``train`` took, if it ran by itself.

    Returns:
        ``perf/tokens`` of prompts and responses, and ``perf/tflop`` of forward and backward passes
        over them; with ``seconds`` also ``perf/tokens_per_s`` and ``perf/tflops`` (per second, of
        all ranks), and ``perf/utilisation``, its share of the GPUs' peak, where that is known.
    """
    tokens = float(sum(meta.sequence_lengths or []))
    tflop = sum(update["total_flops"] for update in updates) / 1e12
    metrics = {"perf/tokens": tokens, "perf/tflop": tflop}
    if not seconds:
        return metrics
    metrics |= {"perf/tokens_per_s": tokens / seconds, "perf/tflops": tflop / seconds}
    peak = updates[0]["theoretical_tflops"]
    return metrics | ({"perf/utilisation": tflop / seconds / peak} if peak else {})
