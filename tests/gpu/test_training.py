"""GRPO on GPUs: a run through the plane equals the run in memory, in each precision and layout."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from rlconform.certify.scenarios.training_actors import SMALL
from rlconform.check_run.judge import judge_run
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import load_config

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

STEPS = 4
ONE_GPU = ("cluster.device=cuda", "cluster.dp_size=1", f"grpo.max_num_steps={STEPS}")
SETTINGS = {
    "llama, float32": ("tiny_llama_copy", ()),
    "llama, bfloat16": ("tiny_llama_copy", ("policy.precision=bfloat16",)),
    "llama, FSDP2, packed": (
        "tiny_llama_copy",
        ("policy.parallelism=fsdp2", "policy.packing.mode=sequence_packing"),
    ),
    "Qwen3-MoE, dynamic batches": ("tiny_moe_copy", ("policy.packing.mode=dynamic_batching",)),
    "reward model": ("tiny_llama_copy", ("reward_model.enable=true",)),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_run_through_the_plane_is_the_run_in_memory(
    in_memory: Any, through_plane: Any, setting: str
) -> None:
    name, overrides = SETTINGS[setting]
    config = load_config(name, [*SMALL, *ONE_GPU, *overrides])
    run = through_plane(config)
    assert differences(in_memory(config), run) == []
    assert len(run.reports) == STEPS
    assert max(run.series("train/grad_norm")) > 0
    assert all(map(math.isfinite, run.series("train/loss")))


def test_two_ranks_over_nccl_are_the_run_in_memory(
    gpus: int, in_memory: Any, through_plane: Any
) -> None:
    if gpus < 2:
        pytest.skip(f"needs 2 GPUs; this machine has {gpus}")
    config = load_config("tiny_llama_copy", [*SMALL, *ONE_GPU, "cluster.dp_size=2"])
    run = through_plane(config)
    assert differences(in_memory(config), run) == []
    assert max(run.series("train/grad_norm")) > 0


def test_an_asynchronous_run_is_clean_and_learns(through_plane: Any, tmp_path: Path) -> None:
    events = f"logger.events_dir={tmp_path / 'events'}"
    overrides = ["cluster.device=cuda", "cluster.dp_size=1", events]
    run = through_plane(load_config("tiny_llama_copy_async", overrides))
    assert judge_run([tmp_path / "events"]).not_clean() == []
    rewards = run.series("train/reward")
    assert fmean(rewards[:10]) < 0.5
    assert fmean(rewards[-10:]) > 0.9
