"""Reward workers as Ray actors: pools, scores of several workers, losses, sleep, shutdown.

driver ── RunActors.build ──▶ reward workers, rollout workers with their handles
       ── ModelScorer, in an event loop of the test ── batches ──▶ reward workers
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import ray
import torch
from ray.util import placement_group_table
from transformers import LlamaConfig, LlamaForSequenceClassification

from rlconform.contract import ConfigError
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import run_to_end
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.failures import WorkerDied, WorkerLost
from rlconform.grpo.models import character_tokenizer
from rlconform.grpo.models.tiny import TINY_SIZES
from rlconform.grpo.rewards import Reward, RewardRequest
from rlconform.grpo.rewards.model_scorer import ModelScorer
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.tasks import PolicyTurn, Problem
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.workers.policy_worker import PolicyWorker

pytestmark = pytest.mark.timeout(300)


class HandedWorker(RolloutWorker):
    """A rollout worker that tells what it knows of the reward workers."""

    def score_here(self, requests: Sequence[RewardRequest]) -> list[Reward]:
        """Score rows from this process."""
        assert self._reward_workers is not None
        return asyncio.run(score_all(self._reward_workers, self._config, requests))


async def score_all(
    workers: RewardWorkers, config: MasterConfig, requests: Sequence[RewardRequest]
) -> list[Any]:
    scorer = ModelScorer(workers, config.reward_model)
    scored = await asyncio.gather(*map(scorer.score, requests), return_exceptions=True)
    await scorer.close()
    return scored


def rows(count: int) -> list[RewardRequest]:
    """Rows, every tenth of which has the right answer."""
    return [
        RewardRequest(
            f"p{i}_g0",
            0,
            Problem(f"p{i}", ({"role": "user", "content": "4"},), "4"),
            (PolicyTurn(str(i % 10), ended=True),),
            "train",
        )
        for i in range(count)
    ]


def with_model(small: Callable[..., MasterConfig], *overrides: str) -> MasterConfig:
    base = ("cluster.dp_size=1", "cluster.timeout_s=250", "data_plane.enabled=false")
    return small("tiny_llama_copy", *base, "reward_model.enable=true", *overrides)


def start(config: MasterConfig) -> RunActors:
    actors = RunActors(PolicyWorker, HandedWorker, config.cluster, reward_model=config.reward_model)
    actors.build(config)
    return actors


def reserved() -> set[str]:
    table = placement_group_table()
    return {group for group, entry in table.items() if entry["state"] != "REMOVED"}


@pytest.mark.parametrize("dp_size", [1, 2, 4])
def test_rollout_workers_get_scores_from_all_reward_workers(
    runs: Any,  # noqa: ARG001 - starts Ray
    small: Callable[..., MasterConfig],
    dp_size: int,
) -> None:
    config = with_model(
        small,
        "reward_model.enable_resource_pool=true",
        f"reward_model.n_gpus_per_node={dp_size}",
        f"reward_model.dp_size={dp_size}",
        "reward_model.max_batch_size=8",
    )
    before = reserved()
    actors = start(config)
    try:
        scored = actors.call_rollout_worker(HandedWorker.score_here, rows(50))
        assert [each.sample_id for each in scored] == [f"p{i}_g0" for i in range(50)]
        assert [each.value > 0.75 for each in scored] == [i % 10 == 4 for i in range(50)]
        assert [each.value < 0.25 for each in scored] == [i % 10 != 4 for i in range(50)]
        assert actors.reward_group is not None
        handles = actors.reward_group.handles()
        if dp_size == 2:
            ray.kill(handles.actors[0])
            assert asyncio.run(score_all(handles, config, rows(50))) == scored
            assert handles.sleep() > 0  # of the other one
            ray.kill(handles.actors[1])
            lost = asyncio.run(score_all(handles, config, rows(3)))
            assert [type(each) for each in lost] == [WorkerLost] * 3
            with pytest.raises(WorkerDied, match="a reward worker's wake"):
                handles.wake()
    finally:
        actors.shutdown()
    assert reserved() == before


def test_a_worker_on_a_shared_pool_sleeps_while_rows_are_generated(
    runs: Any,  # noqa: ARG001 - starts Ray
    small: Callable[..., MasterConfig],
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    # 100 MB of weights, so that a process with and without them differ.
    sizes = {**TINY_SIZES, "hidden_size": 1024, "intermediate_size": 4096, "num_labels": 1}
    LlamaForSequenceClassification(LlamaConfig(**sizes)).save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    config = with_model(
        small,
        f"reward_model.model_name={tmp_path}",
        "reward_model.sleep_while_generating=true",
    )
    actors = start(config)
    try:
        assert actors.reward_group is not None
        handles = actors.reward_group.handles()
        (worker,) = handles.actors
        before = asyncio.run(score_all(handles, config, rows(3)))
        held, resident, _ = ray.get(worker.usage.remote(), timeout=60)
        assert held > 100e6
        with handles.resting():
            held_asleep, resident_asleep, _ = ray.get(worker.usage.remote(), timeout=60)
        assert held_asleep == 0
        assert resident - resident_asleep > 0.8 * held
        assert ray.get(worker.usage.remote(), timeout=60)[0] == held
        assert asyncio.run(score_all(handles, config, rows(3))) == before
        actors.refit(0)
        problem = Problem("p", ({"role": "user", "content": "4"},), "4")
        actors.call_rollout_worker(HandedWorker.collect, [problem], "train")  # rests, and wakes
        assert ray.get(worker.usage.remote(), timeout=60)[0] == held
        assert handles.sleep() == held
        assert asyncio.run(score_all(handles, config, rows(3))) == before  # a batch wakes it
    finally:
        actors.shutdown()


def test_a_policy_learns_from_the_reward_model(runs: Any) -> None:  # noqa: ARG001 - starts Ray
    """Its worker shares the rollout worker's core, and sleeps while rows are generated."""
    overrides = (
        "cluster.timeout_s=250",
        "data_plane.enabled=false",
        "reward_model.enable=true",
        "reward_model.sleep_while_generating=true",
    )
    config = load_config("tiny_llama_copy", overrides)
    actors = RunActors(
        PolicyWorker, RolloutWorker, config.cluster, reward_model=config.reward_model
    )
    try:
        rewards = run_to_end(LegacyTrainer(config, actors)).series("train/reward")
    finally:
        actors.shutdown()
    assert fmean(rewards[:3]) < 0.4
    assert fmean(rewards[-10:]) > 0.9


def test_a_model_that_cannot_be_loaded_and_missing_workers_are_told(
    runs: Any, small: Callable[..., MasterConfig]
) -> None:
    config = with_model(small, "reward_model.model_name=nowhere")
    with pytest.raises(ConfigError, match="start RunActors with reward_model"):
        runs.legacy_actors.build(config)
    actors = RunActors(PolicyWorker, HandedWorker, config.cluster, reward_model=config.reward_model)
    try:
        with pytest.raises(ConfigError, match="'nowhere' is neither"):
            actors.build(config)
    finally:
        actors.shutdown()
