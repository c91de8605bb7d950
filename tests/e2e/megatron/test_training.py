"""Whole runs on Megatron: in memory and through planes, resumed, asynchronous."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import TrainingRecord, differences, run_to_end
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer

pytestmark = pytest.mark.timeout(600)

Groups = Callable[[int], RunActors]
Configure = Callable[..., MasterConfig]

CASES = [
    ("tiny_llama_copy", "tp2", "none"),
    ("tiny_llama_copy", "tp2 leader", "sequence_packing"),
    ("tiny_llama_copy", "tp2 sp dp2", "dynamic_batching"),
    ("tiny_moe_copy", "pp2", "none"),
    ("tiny_moe_copy", "ep2", "sequence_packing"),
    ("tiny_moe_copy", "tp2 sp ep2", "none"),
]


def through_plane(
    actors: RunActors, config: MasterConfig, client: DataPlaneClient, attach: Attach
) -> TrainingRecord:
    trainer_class = PlaneTrainer if config.async_rl is None else AsyncPlaneTrainer
    trainer = trainer_class(config, actors, client, attach)
    try:
        return run_to_end(trainer)
    finally:
        trainer.shutdown()


@pytest.mark.parametrize("plane_name", ["ray_store", "transfer_queue/simple"], indirect=True)
@pytest.mark.parametrize(("model", "layout", "packing"), CASES)
def test_a_run_through_the_plane_is_the_run_in_memory(
    groups: Groups,
    configure: Configure,
    world_of: Callable[[str], int],
    owner: DataPlaneClient,
    attach: Attach,
    model: str,
    layout: str,
    packing: str,
) -> None:
    steps = 2
    mode = f"policy.packing.mode={packing}"
    config = configure(model, layout, mode, f"grpo.max_num_steps={steps}")
    actors = groups(world_of(layout))
    in_memory = run_to_end(LegacyTrainer(config, actors))
    through = through_plane(actors, config, owner, attach)
    assert differences(in_memory, through) == []
    # Runs that learn nothing would be equal too.
    assert len(through.reports) == steps
    assert sum(norm > 0 for norm in through.series("train/grad_norm")) > 0


@pytest.mark.smoke
def test_two_tensor_parallel_ranks_through_ray_store(
    groups: Groups, configure: Configure, owner: DataPlaneClient, attach: Attach
) -> None:
    config = configure("tiny_llama_copy", "tp2 leader", "grpo.max_num_steps=2")
    in_memory = run_to_end(LegacyTrainer(config, groups(2)))
    assert differences(in_memory, through_plane(groups(2), config, owner, attach)) == []


@pytest.mark.parametrize(
    ("model", "layout"),
    [
        ("tiny_llama_copy", "tp2 sp"),
        ("tiny_llama_copy", "dp2 zero"),
        ("tiny_moe_copy", "ep2 zero"),
        ("tiny_moe_copy", "pp2"),
    ],
)
def test_two_steps_a_checkpoint_and_one_more_are_three(
    groups: Groups, configure: Configure, tmp_path: Path, model: str, layout: str
) -> None:
    folder = f"checkpointing.checkpoint_dir={tmp_path}"
    saved = (folder, "checkpointing.enabled=true", "checkpointing.save_period=2")
    warm_up = "policy.scheduler.warmup_steps=5"  # updates; a step has two
    actors = groups(2)

    def run(*overrides: str) -> TrainingRecord:
        return run_to_end(LegacyTrainer(configure(model, layout, warm_up, *overrides), actors))

    whole = run("grpo.max_num_steps=3")
    begun = run(*saved, "grpo.max_num_steps=2")
    resumed = run(*saved, "grpo.max_num_steps=3")
    assert [report.step for report in begun.reports] == [1, 2]
    assert [report.step for report in resumed.reports] == [3]
    assert differences(whole, resumed) == []


def test_an_asynchronous_run_ends(
    groups: Groups, configure: Configure, owner: DataPlaneClient, attach: Attach
) -> None:
    """At a staleness of one version, on two tensor-parallel ranks."""
    ahead = (
        "async_rl.max_inflight_prompts=4",
        "async_rl.min_groups_for_streaming_train=2",
        "policy.train_global_batch_size=null",
    )
    config = configure("tiny_llama_copy_async", "tp2", *ahead, "grpo.max_num_steps=3")
    record = through_plane(groups(2), config, owner, attach)
    assert [report.step for report in record.reports] == [1, 2, 3]
    assert any(norm > 0 for norm in record.series("train/grad_norm"))
