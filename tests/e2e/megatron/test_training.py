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
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.trace import TRACE_VARIABLE
from rlconform.grpo.router_replay.trace_records import read_trace
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.trainers.plane import PlaneTrainer

pytestmark = pytest.mark.timeout(600)

Groups = Callable[[int], RunActors]
Configure = Callable[..., MasterConfig]

PLANES = ("ray_store", "transfer_queue/simple")
LLAMA, MOE = "tiny_llama_copy", "tiny_moe_copy"
#: With experts Megatron needs sequence parallelism beside tensor parallelism.
CASES = [
    (LLAMA, "tp2", "none"),
    (LLAMA, "tp2 leader", "sequence_packing"),
    (LLAMA, "tp2 sp", "none"),
    (LLAMA, "pp2", "sequence_packing"),
    (LLAMA, "dp2", "none"),
    (LLAMA, "tp2 dp2", "none"),
    (LLAMA, "tp2 sp dp2", "dynamic_batching"),
    (MOE, "tp2 sp", "sequence_packing"),
    (MOE, "pp2", "none"),
    (MOE, "ep2", "sequence_packing"),
    (MOE, "dp2", "dynamic_batching"),
    (MOE, "tp2 sp ep2", "none"),
    (MOE, "tp2 sp dp2", "none"),
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


@pytest.mark.parametrize("plane_name", PLANES, indirect=True)
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


@pytest.mark.parametrize("model", [LLAMA, MOE])
def test_the_first_update_is_that_of_the_torch_worker(
    groups: Groups, configure: Configure, model: str
) -> None:
    """On rows that an engine sampled, with pad tokens among them."""
    steps = "grpo.max_num_steps=1"
    of_torch, run = (
        run_to_end(LegacyTrainer(configure(model, layout, steps, "cluster.dp_size=1"), groups(1)))
        for layout in ("torch", "dp2")
    )
    for name in ("train/reward", "train/loss", "train/grad_norm"):
        assert run.series(name) == pytest.approx(of_torch.series(name), rel=1e-4, abs=1e-6)
    assert run.series("train/grad_norm")[0] > 0


@pytest.mark.parametrize(
    ("model", "layout"), [(LLAMA, "tp2"), (LLAMA, "dp2 zero"), (MOE, "ep2"), (MOE, "pp2")]
)
def test_a_run_in_bfloat16_is_the_run_in_memory(
    groups: Groups,
    configure: Configure,
    owner: DataPlaneClient,
    attach: Attach,
    model: str,
    layout: str,
) -> None:
    precision = "policy.precision=bfloat16"
    config = configure(model, layout, precision, "grpo.max_num_steps=2")
    in_memory = run_to_end(LegacyTrainer(config, groups(2)))
    run = through_plane(groups(2), config, owner, attach)
    assert differences(in_memory, run) == []
    assert max(run.series("train/grad_norm")) > 0
    of_torch = run_to_end(LegacyTrainer(configure(model, "torch", precision), groups(2)))
    # the first step's rows are of equal weights, which round to 3 digits
    assert run.series("train/reward")[0] == of_torch.series("train/reward")[0]
    assert run.series("train/loss")[0] == pytest.approx(of_torch.series("train/loss")[0], abs=0.02)


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


@pytest.mark.parametrize("plane_name", PLANES, indirect=True)
@pytest.mark.parametrize(
    ("layout", "model", "replay"),
    [
        ("tp2", "tiny-llama", False),
        ("tp2 sp", "tiny-qwen3-moe", False),
        ("tp2 sp", "tiny-qwen3-moe", True),
    ],
    ids=["llama", "MoE, free", "MoE, replayed"],
)
def test_an_asynchronous_run_is_one_version_behind(
    groups: Groups,
    configure: Configure,
    owner: DataPlaneClient,
    attach: Attach,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    layout: str,
    model: str,
    replay: bool,
) -> None:
    """With replay, training uses the experts of the weights before; the trace proves which."""
    steps = 4
    ahead = (
        "async_rl.sampler={name: in_order, max_lookahead_versions: 1}",
        "async_rl.max_inflight_prompts=4",
        "async_rl.min_groups_for_streaming_train=2",
        "policy.train_global_batch_size=null",
        f"policy.model_name={model}",
        f"policy.router_replay.enabled={replay}",
        f"grpo.max_num_steps={steps}",
    )
    config = configure("tiny_llama_copy_async", layout, *ahead)
    if replay:
        monkeypatch.setenv(TRACE_VARIABLE, str(tmp_path))
    run = through_plane(groups(2), config, owner, attach)
    assert [report.step for report in run.reports] == [*range(1, steps + 1)]
    assert max(run.series("staleness/total/max")) == 1
    assert any(norm > 0 for norm in run.series("train/grad_norm"))
    if replay:
        verdict = check_trace(read_trace(tmp_path))
        assert verdict.failures == ()
        assert verdict.rows == steps * config.grpo.rows_per_step
