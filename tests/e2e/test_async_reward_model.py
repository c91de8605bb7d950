"""An asynchronous run learns from a reward model that has a resource pool of its own.

rollout workers ── rows that are done, in batches ──▶ reward worker, on its own core
                ◀── scores ──┘                        meanwhile other rows are generated
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from rlconform.check_run.judge import judge_run
from rlconform.contract import DataPlaneClient
from rlconform.grpo.actors import RunActors
from rlconform.grpo.compare_runs import run_to_end
from rlconform.grpo.config import load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker

#: The bounds of ``test_async`` for a run whose rewards come from the task's rule.
BAR, LAST = 0.9, 10


@pytest.mark.timeout(600)
@pytest.mark.parametrize("plane_name", ["ray_store"], scope="module")
@pytest.mark.parametrize("transport", ["buffer", "queue"])
def test_it_learns_as_from_the_rule_of_the_task(
    owner: DataPlaneClient, attach: Attach, tmp_path: Path, transport: str
) -> None:
    config = load_config(
        "tiny_llama_copy_async",
        [
            "cluster.dp_size=1",
            "cluster.timeout_s=250",
            "reward_model.enable=true",
            "reward_model.enable_resource_pool=true",
            f"async_rl.transport={transport}",
            f"logger.events_dir={tmp_path}",
        ],
    )
    actors = RunActors(
        PlanePolicyWorker,
        PlaneRolloutWorker,
        config.cluster,
        groups_in_flight=8,
        reward_model=config.reward_model,
    )
    trainer = AsyncPlaneTrainer(config, actors, owner, attach)
    try:
        rewards = run_to_end(trainer).series("train/reward")
    finally:
        trainer.shutdown()
        actors.shutdown()
    assert fmean(rewards[:LAST]) < BAR / 2
    assert fmean(rewards[-LAST:]) > BAR
    report = judge_run([tmp_path])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == len(rewards) * config.grpo.num_prompts_per_step
