"""Asynchronous runs through real planes: equal to synchronous ones, and learning."""

from __future__ import annotations

import statistics
from collections import Counter
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import ray

from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.failures import WorkerDied
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.training_loop import fit
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker

#: An engine rounds by its batch, so both runs generate group by group.
BY_GROUP = "generation.batch_size=8"
SHORT = ("grpo.max_num_steps=4", "cluster.dp_size=2", BY_GROUP)
#: The asynchronous configuration corrects for older weights; on-policy it must not matter.
UNCORRECTED = (
    "loss_fn.use_importance_sampling_correction=false",
    "loss_fn.truncated_importance_sampling_type=null",
    "loss_fn.truncated_importance_sampling_ratio=null",
)
ON_POLICY = ("async_rl.sampler.max_lookahead_versions=0", "async_rl.max_inflight_prompts=1")


def on_policy(*overrides: str) -> MasterConfig:
    return load_config("tiny_llama_copy_async", [*SHORT, *UNCORRECTED, *ON_POLICY, *overrides])


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_on_policy_the_asynchronous_run_equals_the_synchronous_one(
    runs: Any, owner: DataPlaneClient, attach: Attach
) -> None:
    synchronous = runs.plane(load_config("tiny_llama_copy", SHORT), owner, attach)
    asynchronous = runs.plane(on_policy(), owner, attach)
    assert differences(synchronous, asynchronous) == []


SAMPLERS = (
    "{name: in_order, max_lookahead_versions: 1}",
    "{name: windowed, max_staleness_versions: 1}",
    "{name: ready_first, max_staleness_versions: 1}",
    "{name: weight_fifo, max_staleness_versions: 1}",
)
MODES = (
    "async_rl.in_flight_weight_updates=false",
    "async_rl.in_flight_weight_updates=true",
    pytest.param("async_rl.partial_rollouts=true", marks=pytest.mark.smoke),
)


def one_behind(*overrides: str) -> MasterConfig:
    return load_config("tiny_llama_copy_async", ["cluster.dp_size=2", *overrides])


def staleness_of(run: Any) -> list[float]:
    return run.series("staleness/total/max")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("mode", MODES, ids=["drain", "in_flight", "partial"])
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda block: block[7:].partition(",")[0])
def test_every_sampler_trains_each_prompt_once(
    runs: Any, owner: DataPlaneClient, attach: Attach, sampler: str, mode: str
) -> None:
    steps = 6
    config = one_behind(
        f"async_rl.sampler={sampler}", mode, f"grpo.max_num_steps={steps}",
        "async_rl.min_groups_for_streaming_train=3",
    )  # fmt: skip
    run = runs.plane(config, owner, attach)
    trained = [sample for report in run.reports for sample in report.result.sample_ids]
    prompts = {sample.partition("_g")[0].partition("-r")[0] for sample in trained}
    assert len(trained) == len(set(trained)) == steps * config.grpo.rows_per_step
    assert prompts == {f"train-{i}" for i in range(steps * config.grpo.num_prompts_per_step)}
    assert max(staleness_of(run)) <= 1
    assert run.series("groups/trained")[-1] == len(prompts)


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_the_witness_saw_every_row_once(runs: Any, owner: DataPlaneClient, attach: Attach) -> None:
    config = one_behind("grpo.max_num_steps=4", "policy.witness=true")
    trainer = AsyncPlaneTrainer(config, runs.plane_actors, owner, attach)
    try:
        for report in fit(trainer):
            witnessed, unwitnessed = trainer.policy.witnessed(), trainer.policy.unwitnessed()
            assert set(witnessed.values()) == {1}
            assert witnessed.keys() | unwitnessed == set(report.result.sample_ids)
            assert witnessed, "some rows have a gradient"
    finally:
        trainer.shutdown()


@pytest.mark.smoke
@pytest.mark.timeout(180)
@pytest.mark.parametrize("rows", ["true", "false"])
def test_a_resumed_run_trains_each_prompt_once(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, rows: str
) -> None:
    saved = (
        "checkpointing.enabled=true", f"checkpointing.checkpoint_dir={tmp_path}",
        "checkpointing.save_period=3", f"async_rl.checkpoint_rows={rows}",
    )  # fmt: skip
    config = one_behind(*saved, "grpo.max_num_steps=6")
    # It ends after step 4 without a checkpoint of it, so step 4 is trained again.
    trainer = AsyncPlaneTrainer(config, runs.plane_actors, owner, attach)
    first = list(islice(fit(trainer), 4))[:3]
    trainer.shutdown()
    rest = runs.plane(config, owner, attach)
    trained = [
        sample.partition("_g")[0].partition("-r")[0]
        for report in [*first, *rest.reports]
        for sample in report.result.sample_ids
    ]
    assert [report.step for report in rest.reports] == [4, 5, 6]
    assert Counter(trained) == {f"train-{i}": 8 for i in range(6 * 8)}
    assert max(staleness_of(rest)) <= 1


@pytest.mark.timeout(180)
def test_a_run_without_rollout_workers_ends_with_a_typed_error(
    owner: DataPlaneClient, attach: Attach
) -> None:
    config = one_behind("cluster.dp_size=1", "async_rl.rollout_failure.backoff_base_s=0.1")
    actors = RunActors(PlanePolicyWorker, PlaneRolloutWorker, config.cluster, groups_in_flight=8)
    trainer = AsyncPlaneTrainer(config, actors, owner, attach)
    with ExitStack() as stack:
        stack.callback(actors.shutdown)
        trainer.step()
        ray.kill(actors.rollout_workers[0])
        with pytest.raises(WorkerDied) as died:
            list(fit(trainer))
        trainer.end_after_error(died.type, died.value, died.tb)


#: Mean reward over the last steps, as in ``test_learning``; an untrained policy is near 0.1.
BAR = 0.9
LAST = 10


@pytest.mark.timeout(300)
@pytest.mark.parametrize("window", [0, 1, 2])
@pytest.mark.parametrize("plane_name", ["ray_store", "transfer_queue/simple"], scope="module")
def test_it_learns_as_far_as_the_synchronous_run(
    runs: Any, owner: DataPlaneClient, attach: Attach, window: int
) -> None:
    config = one_behind(
        f"async_rl.sampler.max_lookahead_versions={window}",
        f"async_rl.max_buffered_rollouts={8 * (window + 1)}",
    )
    run = runs.plane(config, owner, attach)
    rewards = run.series("train/reward")
    assert statistics.fmean(rewards[:LAST]) < BAR / 2
    assert statistics.fmean(rewards[-LAST:]) > BAR
    assert max(staleness_of(run)) == window, "older weights were used, up to the bound"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("plane_name", ["ray_store", "transfer_queue/simple"], scope="module")
def test_it_learns_over_the_trajectory_queue_as_well(
    runs: Any, owner: DataPlaneClient, attach: Attach
) -> None:
    run = runs.plane(one_behind("async_rl.transport=queue"), owner, attach)
    rewards = run.series("train/reward")
    assert statistics.fmean(rewards[:LAST]) < BAR / 2
    assert statistics.fmean(rewards[-LAST:]) > BAR
    assert max(staleness_of(run)) == 1, "older weights were used, up to the bound"
