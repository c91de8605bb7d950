"""Runs of all trainers write events, and ``check-run`` is clean on them, plane calls included."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import DataPlaneClient
from rlconform.events import LogReader
from rlconform.events.schema import EventSource, PlaneOp, Record
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.events_actor import EventLogPlace
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.trainers.legacy import LegacyTrainer
from rlconform.grpo.training_loop import fit
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker

pytestmark = pytest.mark.timeout(180)

ON_RAY_STORE = pytest.mark.parametrize("plane_name", ["ray_store"], scope="module")


def config(name: str, folder: Path, *overrides: str) -> MasterConfig:
    return load_config(
        name, ["cluster.dp_size=2", f"logger.events_dir={folder / 'events'}", *overrides]
    )


def not_applicable(report: RunReport) -> set[str]:
    outcome = RuleOutcome.NOT_APPLICABLE
    return {verdict.rule for verdict in report.verdicts if verdict.outcome is outcome}


@pytest.mark.smoke
@ON_RAY_STORE
@pytest.mark.parametrize(
    "mode",
    ["async_rl.in_flight_weight_updates=true", "async_rl.partial_rollouts=true"],
    ids=["in_flight", "partial"],
)
def test_an_asynchronous_run_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path, mode: str
) -> None:
    run = config(
        "tiny_llama_copy_async", tmp_path, mode, "grpo.max_num_steps=4",
        "async_rl.min_groups_for_streaming_train=3",
    )  # fmt: skip
    runs.plane(run, owner, attach)
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == 4 * run.grpo.num_prompts_per_step
    assert not_applicable(report) == {"resume"}
    assert len(report.files) == 4, "driver, rollout worker, two ranks"
    assert max(report.lags["start"]) == 1


@ON_RAY_STORE
def test_a_resumed_run_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    run = config(
        "tiny_llama_copy_async", tmp_path, "checkpointing.enabled=true",
        f"checkpointing.checkpoint_dir={tmp_path / 'saved'}", "checkpointing.save_period=3",
        "grpo.max_num_steps=6",
    )  # fmt: skip
    trainer = AsyncPlaneTrainer(run, runs.plane_actors, owner, attach)
    list(islice(fit(trainer), 4))  # step 4 is lost, and trained again
    trainer.shutdown()
    runs.plane(run, owner, attach)
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert not_applicable(report) == set()


@ON_RAY_STORE
def test_synchronous_runs_are_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    run = config("tiny_llama_copy", tmp_path / "plane", "grpo.max_num_steps=3")
    runs.plane(run, owner, attach)
    report = judge_run([tmp_path / "plane" / "events"])
    assert report.not_clean() == []
    assert not_applicable(report) == {"resume"}

    run = config(
        "tiny_llama_copy", tmp_path / "memory", "grpo.max_num_steps=3",
        "grpo.use_dynamic_sampling=true", "grpo.dynamic_sampling_max_gen_batches=10",
        "grpo.batch_multiplier=2",
    )  # fmt: skip
    trainer = LegacyTrainer(run, runs.legacy_actors)
    list(fit(trainer))
    trainer.shutdown()
    report = judge_run([tmp_path / "memory" / "events"])
    assert report.not_clean() == []
    assert not_applicable(report) == {"resume", "plane_ops"}
    assert report.overview.fates["filtered_uniform"] or report.overview.fates["surplus"]


@pytest.mark.parametrize("plane_name", ["transfer_queue/simple"], scope="module")
def test_an_asynchronous_run_on_transfer_queue_is_clean(
    runs: Any, owner: DataPlaneClient, attach: Attach, tmp_path: Path
) -> None:
    run = config("tiny_llama_copy_async", tmp_path, "grpo.max_num_steps=4")
    runs.plane(run, owner, attach)
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert not_applicable(report) == {"resume"}
    calls = [one.event for one in records(tmp_path) if isinstance(one.event, PlaneOp)]
    ended = [call for call in calls if call.status != "invoked"]
    assert {call.op for call in ended} == {"put", "get", "clear"}
    assert {call.status for call in ended} == {"ok"}
    assert len(calls) == 2 * len(ended), "every call ends"


class OnAnotherHost(PlaneRolloutWorker):
    """A rollout worker whose host has another name, and a wall clock that is behind."""

    def open_events(self, place: EventLogPlace, rank: int, stamp: int) -> EventSource:
        """Change the process's host first."""
        now = time.time_ns
        time.time_ns = lambda: now() - 3600 * 10**9
        socket.gethostname = lambda: "another-host"
        return super().open_events(place, rank, stamp)


@ON_RAY_STORE
def test_a_run_on_two_hosts_with_other_clocks_is_clean(
    runs: Any,  # noqa: ARG001 - starts Ray
    owner: DataPlaneClient,
    attach: Attach,
    tmp_path: Path,
) -> None:
    run = config(
        "tiny_llama_copy_async", tmp_path, "cluster.dp_size=1", "grpo.max_num_steps=4",
        "async_rl.in_flight_weight_updates=true",
    )  # fmt: skip
    with ExitStack() as stack:
        actors = RunActors(PlanePolicyWorker, OnAnotherHost, run.cluster, groups_in_flight=8)
        stack.callback(actors.shutdown)
        trainer = AsyncPlaneTrainer(run, actors, owner, attach)
        stack.push(trainer.end_after_error)
        list(fit(trainer))
        trainer.shutdown()
    report = judge_run([tmp_path / "events"])
    assert report.not_clean() == []
    assert report.overview.fates["trained"] == 4 * run.grpo.num_prompts_per_step
    far = [one for one in records(tmp_path) if one.source.host == "another-host"]
    assert {one.source.role for one in far} == {"rollout"}
    assert all(one.clock > one.wall_ns // 1000 + 10**9 for one in far[1:]), (
        "clocks are the driver's"
    )


def records(folder: Path) -> list[Record]:
    return list(LogReader(sorted((folder / "events").glob("events-*.jsonl"))))
