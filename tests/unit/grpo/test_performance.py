"""Tokens, operations and utilisation of a step."""

from __future__ import annotations

import pytest

from rlconform.contract import KVBatchMeta
from rlconform.grpo.trainers.performance import performance

META = KVBatchMeta("train", None, ["a", "b"], sequence_lengths=[3, 5])
UPDATES = [
    {"total_flops": 4e12, "theoretical_tflops": 10.0},
    {"total_flops": 2e12, "theoretical_tflops": 10.0},
]


def test_updates_add_up_and_time_makes_rates() -> None:
    assert performance(META, UPDATES, 2.0) == {
        "perf/tokens": 8,
        "perf/tflop": 6,
        "perf/tokens_per_s": 4,
        "perf/tflops": 3,
        "perf/utilisation": pytest.approx(0.3),
    }


def test_without_time_there_are_no_rates() -> None:
    assert performance(META, UPDATES) == {"perf/tokens": 8, "perf/tflop": 6}


def test_a_device_without_a_known_peak_has_no_utilisation() -> None:
    on_cpu = [{"total_flops": 4e12, "theoretical_tflops": 0.0}]
    assert "perf/utilisation" not in performance(META, on_cpu, 2.0)
