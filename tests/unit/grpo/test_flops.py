"""The operations of a pass, counted by hand for the tiny models."""

from __future__ import annotations

import pytest
import torch

from rlconform.grpo.models import tiny_model
from rlconform.grpo.models.tiny import VOCABULARY
from rlconform.grpo.workers.flops import ModelFlops, peak_tflops

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD = 64, 2, 4, 2, 16
ATTENTION = HIDDEN * HEAD * (2 * HEADS + 2 * KV_HEADS)  # query, output, key, value
NORMS = 2 * HIDDEN


def test_a_dense_model_uses_all_weights_but_the_embedding_table() -> None:
    flops = ModelFlops.of(tiny_model("tiny-llama", 0))
    mlp = 3 * HIDDEN * 128
    assert flops.weights == LAYERS * (ATTENTION + mlp + NORMS) + HIDDEN + HIDDEN * VOCABULARY
    assert flops.attention == LAYERS * HEADS * HEAD


def test_a_mixture_uses_its_active_experts() -> None:
    flops = ModelFlops.of(tiny_model("tiny-qwen3-moe", 0))
    experts, router = 2 * 3 * HIDDEN * 64, 8 * HIDDEN
    norms = NORMS + 2 * HEAD  # Qwen3 also normalises queries and keys
    layers = LAYERS * (ATTENTION + experts + router + norms)
    assert flops.weights == layers + HIDDEN + HIDDEN * VOCABULARY


def test_a_row_costs_its_tokens_and_their_pairs() -> None:
    flops = ModelFlops(weights=1000, attention=10)
    assert flops.training([]) == 0
    assert flops.training([3]) == 6 * 1000 * 3 + 12 * 10 * 3 * 3
    assert flops.training([3, 5]) == pytest.approx(flops.training([3]) + flops.training([5]))


def test_a_cpu_has_no_peak() -> None:
    assert peak_tflops(torch.device("cpu"), torch.bfloat16) == 0.0
