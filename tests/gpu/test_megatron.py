"""Megatron-core on a GPU, with its own kernels: no layer of the tests stands between."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import pytest

from rlconform.certify.scenarios.training_actors import SMALL
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import load_config

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

STEPS = 3
BASE = ("cluster.device=cuda", "cluster.dp_size=1", f"grpo.max_num_steps={STEPS}")
MEGATRON = "policy.megatron_cfg.enabled=true"
SETTINGS = {
    "llama, float32": ("tiny_llama_copy", ()),
    "llama, bfloat16, distributed optimizer": (
        "tiny_llama_copy",
        (
            "policy.precision=bfloat16",
            "policy.megatron_cfg.optimizer.use_distributed_optimizer=true",
        ),
    ),
    "Qwen3-MoE, packed": ("tiny_moe_copy", ("policy.packing.mode=sequence_packing",)),
}


@pytest.fixture(autouse=True)
def megatron(gpus: int) -> None:
    """Skip where megatron-core is not installed."""
    if gpus and importlib.util.find_spec("megatron.core") is None:
        pytest.skip("megatron-core is not installed")


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_through_the_plane_is_the_run_in_memory(
    in_memory: Any, through_plane: Any, setting: str
) -> None:
    name, overrides = SETTINGS[setting]
    config = load_config(name, [*SMALL, *BASE, MEGATRON, *overrides])
    run = through_plane(config)
    assert differences(in_memory(config), run) == []
    assert len(run.reports) == STEPS
    assert max(run.series("train/grad_norm")) > 0
    assert all(map(math.isfinite, run.series("train/loss")))


def test_the_first_update_is_that_of_the_torch_worker(through_plane: Any) -> None:
    overrides = [*SMALL, *BASE, "grpo.max_num_steps=1"]
    torch_run = through_plane(load_config("tiny_moe_copy", overrides))
    run = through_plane(load_config("tiny_moe_copy", [*overrides, MEGATRON]))
    # The loss is a mean of terms near 1 that cancel, so its rounding error is not small beside it.
    for name in ("train/reward", "train/grad_norm", "train/loss"):
        assert run.series(name) == pytest.approx(torch_run.series(name), rel=1e-3, abs=1e-4)


def test_tensor_parallel_ranks_over_nccl(gpus: int, in_memory: Any, through_plane: Any) -> None:
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs; this machine has {gpus}")
    config = load_config(
        "tiny_llama_copy",
        [
            *SMALL, *BASE, MEGATRON, "cluster.dp_size=2", "policy.megatron_cfg.fetch_policy=leader",
            "policy.megatron_cfg.tensor_model_parallel_size=2",
        ],
    )  # fmt: skip
    run = through_plane(config)
    assert differences(in_memory(config), run) == []
    assert max(run.series("train/grad_norm")) > 0
