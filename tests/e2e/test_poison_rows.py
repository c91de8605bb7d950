"""Rows that kill each reward worker that scores them, in a run with real workers.

rollout worker ── batch with the row ──▶ worker 0: SIGKILL ── the row alone ──▶ worker 1: SIGKILL
               ── the row fails, others ──▶ worker 2 ── the next such row ──▶ SIGKILL, the run ends
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.check_run.judge import judge_run
from rlconform.events import LogReader
from rlconform.events.schema import (
    Committed,
    ProcessLost,
    RewardFailed,
    RewardFailureCause,
    RunEvent,
    ScoringFinished,
    ScoringStarted,
    Trained,
)
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.failures import WorkerLost
from rlconform.grpo.rewards import reward_group
from rlconform.grpo.rewards.batching_executor import MOST_LOSSES
from rlconform.grpo.rewards.reward_model import RowScore, RowToScore
from rlconform.grpo.rewards.reward_worker import RewardWorker
from rlconform.grpo.rollout.worker import RolloutWorker
from rlconform.grpo.tasks import build_task
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.plane import mint_sample_ids

pytestmark = pytest.mark.timeout(300)


def poisoned(rows: frozenset[str]) -> type[RewardWorker]:
    """A reward worker that ends like a crash of native code when it scores one of these rows."""

    class PoisonedWorker(RewardWorker):
        """Dies of some rows."""

        def _scores(self, batch: Sequence[RowToScore]) -> list[RowScore]:
            if rows & {row.sample_id for row in batch}:
                os.kill(os.getpid(), signal.SIGKILL)
            return super()._scores(batch)

    return PoisonedWorker


def test_a_row_costs_two_workers_at_most_and_without_a_worker_the_run_ends(
    small: Callable[..., MasterConfig],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = small(
        "tiny_llama_copy",
        "cluster.dp_size=1", "cluster.timeout_s=250", "data_plane.enabled=false",
        "reward_model.enable=true", "reward_model.enable_resource_pool=true",
        "reward_model.n_gpus_per_node=3", "reward_model.dp_size=3",
        f"logger.events_dir={tmp_path}",
    )  # fmt: skip
    task = build_task(config.data, config.grpo.seed, "train")
    uids = [task.problem(index).uid for index in (0, config.grpo.num_prompts_per_step)]
    of_step_1, of_step_2 = (mint_sample_ids([uid], 2)[1] for uid in uids)
    bad = frozenset({of_step_1, of_step_2})
    monkeypatch.setattr(reward_group, "RewardWorker", poisoned(bad))
    with ensure_ray(object_store_bytes=2**28):
        actors = RunActors(
            PolicyWorker, RolloutWorker, config.cluster, reward_model=config.reward_model
        )
        try:
            trainer = LegacyTrainer(config, actors)
            trainer.step()
            with pytest.raises(WorkerLost, match="no reward worker is left") as ended:
                trainer.step()
            trainer.end_after_error(ended.type, ended.value, None)
        finally:
            actors.shutdown()

    records = list(LogReader(sorted(tmp_path.glob("events-*.jsonl"))))
    failed = [one.event for one in records if isinstance(one.event, RewardFailed)]
    assert [(one.group_id, one.row, one.cause) for one in failed] == [
        (uids[0], 1, RewardFailureCause.UNAVAILABLE)
    ]
    assert f"{MOST_LOSSES} runners were lost with it" in (failed[0].error or "")
    (trained,) = [one.event for one in records if is_of(one.event, Trained, uids[0])]
    (committed,) = [one.event for one in records if is_of(one.event, Committed, uids[0])]
    assert committed.rewards[1] is None
    assert trained.rows == [row for row in committed.rows if row != 1]

    lost = [one.event.lost for one in records if isinstance(one.event, ProcessLost)]
    workers = [source for source in lost if source.role == "reward"]
    assert sorted(source.rank for source in workers) == [0, 1, 2]
    last = {one.source: one.event for one in records if isinstance(one.event, BATCHES)}
    batches = [last[source] for source in workers]
    assert all(isinstance(one, ScoringStarted) and bad & set(one.sample_ids) for one in batches)
    assert [of_step_1] in [one.sample_ids for one in batches]  # the second worker had it alone
    report = judge_run([tmp_path])
    assert report.ended == "failed"
    assert report.not_clean() == []


BATCHES = (ScoringStarted, ScoringFinished)


def is_of(event: RunEvent, kind: type[RunEvent], group_id: str) -> bool:
    """Whether an event is of this kind and group."""
    return isinstance(event, kind) and getattr(event, "group_id", "") == group_id
