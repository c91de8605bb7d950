"""Asynchronous runs over the trajectory queue (``async_rl.transport: queue``) and real planes."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import ray

from rlconform.check_run.judge import judge_run
from rlconform.contract import DataPlaneClient
from rlconform.grpo.compare_runs import differences
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.queue.queue_client import QueueActorCalls, QueueLost
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.training_loop import fit

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.parametrize("plane_name", ["ray_store"], scope="module"),
]


def queued(*overrides: str) -> MasterConfig:
    transport = ("cluster.dp_size=2", "async_rl.transport=queue")
    return load_config("tiny_llama_copy_async", [*transport, *overrides])


@pytest.mark.smoke
def test_a_run_is_clean_and_syncs_when_it_is_due(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    config = queued(
        "async_rl.queue={trigger_parameter_sync_step: 2, staleness_threshold: 0.5, capacity: 8}",
        "async_rl.max_buffered_rollouts=24", "async_rl.partial_rollouts=true",
        "async_rl.min_groups_for_streaming_train=3", "grpo.max_num_steps=5",
        f"logger.events_dir={tmp_path}",
    )  # fmt: skip
    run = runs.plane(config, owner, attach)
    prompts = config.grpo.num_prompts_per_step
    report = judge_run([tmp_path])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == 5 * prompts
    assert run.series("rollout/weight_version") == [0, 2, 2, 4, 5], "after every second, and last"
    assert run.series("queue/got")[-1] == 5 * prompts
    assert run.series("queue/size")[-1] == 0
    assert max(run.series("staleness/total/max")) <= 2, "(1 + 0.5) x 2 steps, less one"


def test_with_threshold_0_the_run_equals_the_synchronous_one(
    runs: Any, owner: DataPlaneClient, attach: Attach
) -> None:
    # An engine rounds by its batch, so both runs generate group by group.
    short = ("cluster.dp_size=2", "grpo.max_num_steps=4", "generation.batch_size=8")
    synchronous = runs.plane(load_config("tiny_llama_copy", short), owner, attach)
    on_policy = queued(
        *short, "async_rl.queue.staleness_threshold=0", "async_rl.max_inflight_prompts=1",
        "loss_fn.use_importance_sampling_correction=false",
        "loss_fn.truncated_importance_sampling_type=null",
        "loss_fn.truncated_importance_sampling_ratio=null",
    )  # fmt: skip
    assert differences(synchronous, runs.plane(on_policy, owner, attach)) == []


@pytest.mark.parametrize("rows", ["true", "false"])
def test_a_resumed_run_trains_each_prompt_once(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, rows: str
) -> None:
    config = queued(
        "checkpointing.enabled=true", f"checkpointing.checkpoint_dir={tmp_path / 'saved'}",
        "checkpointing.save_period=3", f"async_rl.checkpoint_rows={rows}", "grpo.max_num_steps=6",
        f"logger.events_dir={tmp_path / 'events'}",
    )  # fmt: skip
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
    assert Counter(trained) == {f"train-{i}": 8 for i in range(6 * 8)}
    assert judge_run([tmp_path / "events"]).not_clean() == []


def test_the_death_of_the_queue_ends_the_run_at_once(
    runs: Any, owner: DataPlaneClient, attach: Attach, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[QueueActorCalls] = []
    start = QueueActorCalls.start

    def noted(*arguments: Any) -> QueueActorCalls:
        started.append(start(*arguments))
        return started[-1]

    monkeypatch.setattr(QueueActorCalls, "start", noted)
    trainer = AsyncPlaneTrainer(queued(), runs.plane_actors, owner, attach)
    try:
        trainer.step()
        (calls,) = started
        killed: list[float] = []

        def kill() -> None:
            killed.append(time.monotonic())
            ray.kill(calls.actor)

        later = threading.Timer(0.5, kill)
        later.start()
        with pytest.raises(QueueLost, match="has died"):
            list(fit(trainer))
        assert time.monotonic() - killed[0] < 20, "no deadline of minutes had to pass"
        later.join()
    finally:
        trainer.shutdown()
