"""Processes of an asynchronous run are killed: the driver reports them, and check-run is right.

rollout worker killed, one is left   the run goes on: process_lost, its groups are tried again
the only rollout worker killed       the run ends with a typed error: run_finished failed
driver killed                        the log is not whole; resumed, the run is clean
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import DataPlaneClient
from rlconform.events import LogReader
from rlconform.events.schema import (
    EventSource,
    LogClosed,
    ProcessLost,
    Record,
    Resumed,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
)
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.failures import WorkerDied
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.trainers.async_plane import AsyncPlaneTrainer
from rlconform.grpo.training_loop import fit
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker

pytestmark = pytest.mark.timeout(300)

#: Seconds for what a test waits for, on a busy machine.
PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def plane_name() -> str:
    """One plane is enough: what the driver writes does not depend on it."""
    return "ray_store"


def config(folder: Path, *overrides: str) -> MasterConfig:
    return load_config(
        "tiny_llama_copy_async",
        [f"logger.events_dir={folder}", "async_rl.rollout_failure.backoff_base_s=0.1", *overrides],
    )


def records(folder: Path) -> list[Record]:
    return list(LogReader(sorted(folder.glob("events-*.jsonl"))))


def outcomes(report: RunReport) -> dict[str, RuleOutcome]:
    return {verdict.rule: verdict.outcome for verdict in report.verdicts}


def lost(folder: Path) -> list[EventSource]:
    return [one.event.lost for one in records(folder) if isinstance(one.event, ProcessLost)]


@pytest.fixture
def training(
    runs: Any,  # noqa: ARG001 - starts Ray
    owner: DataPlaneClient,
    attach: Attach,
) -> Iterator[Any]:
    """``training(config)``: a trainer on rollout workers of its own, which are ended later."""
    with ExitStack() as stack:

        def start(run: MasterConfig) -> AsyncPlaneTrainer:
            actors = RunActors(
                PlanePolicyWorker, PlaneRolloutWorker, run.cluster, groups_in_flight=8
            )
            stack.callback(actors.shutdown)
            return AsyncPlaneTrainer(run, actors, owner, attach)

        yield start


class KillsWithOpenRollouts:
    """Kills a rollout worker at a moment when it has rollouts that haven't ended.

    thread ── reads the worker's file ──▶ SIGSTOP ── still open? ── no ─▶ SIGCONT, again
                                                           └─ yes ─▶ SIGKILL
    """

    def __init__(self, folder: Path, source: EventSource) -> None:
        (self._file,) = folder.glob(f"events-rollout-{source.pid}*.jsonl")
        self._pid = source.pid
        self.open_groups: set[str] = set()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        due = time.monotonic() + PATIENCE_S
        while time.monotonic() < due:
            if self._open():
                os.kill(self._pid, signal.SIGSTOP)
                self.open_groups = self._open()
                if self.open_groups:
                    os.kill(self._pid, signal.SIGKILL)
                    return
                os.kill(self._pid, signal.SIGCONT)

    def _open(self) -> set[str]:
        """The groups of rows that have begun and not ended."""
        rows: set[tuple[str, int]] = set()
        for record in LogReader([self._file]):
            event = record.event
            if isinstance(event, RolloutStarted):
                rows.add((event.group_id, event.row))
            elif isinstance(event, RolloutFinished):
                rows.discard((event.group_id, event.row))
        return {group for group, _ in rows}

    def join(self) -> set[str]:
        self._thread.join()
        return self.open_groups


def test_a_run_goes_on_without_a_killed_rollout_worker(training: Any, tmp_path: Path) -> None:
    run = config(tmp_path, "cluster.rollout_workers=2", "grpo.max_num_steps=6")
    trainer = training(run)
    killed = trainer.actors.event_sources[1]
    kill = KillsWithOpenRollouts(tmp_path, killed)
    reports = list(fit(trainer))
    trainer.shutdown()

    assert len(reports) == 6
    open_groups = kill.join()
    assert open_groups
    assert lost(tmp_path) == [killed], "reported once"
    report = judge_run([tmp_path])
    assert report.not_clean() == []
    fates = report.overview.fates
    assert fates["trained"] == 6 * run.grpo.num_prompts_per_step
    assert fates["infra_failure"] >= len(open_groups)
    (end,) = [one.event for one in records(tmp_path) if isinstance(one.event, RunFinished)]
    assert end.reason == "completed"


def test_a_run_ends_with_a_typed_error_without_rollout_workers(
    training: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = training(config(tmp_path, "grpo.max_num_steps=50"))
    trainer.step()
    killed, rank = trainer.actors.event_sources
    kill = KillsWithOpenRollouts(tmp_path, killed)
    with pytest.raises(WorkerDied, match="died"):
        fit_to_its_error(trainer)

    assert kill.join()
    assert lost(tmp_path) == [killed, rank]
    written = records(tmp_path)
    (end,) = [one.event for one in written if isinstance(one.event, RunFinished)]
    assert end.reason == "failed"
    assert isinstance(written[-1].event, LogClosed)
    report = judge_run([tmp_path])
    assert report.not_clean() == []
    assert report.ended == "failed"
    assert report.overview.ledger.groups, "what was in flight stays open"
    del trainer
    gc.collect()
    assert [one for one in caplog.records if one.name == "asyncio"] == [], "no task is left"


def fit_to_its_error(trainer: AsyncPlaneTrainer) -> None:
    with ExitStack() as stack:
        stack.push(trainer.end_after_error)
        list(fit(trainer))


def test_a_run_whose_driver_is_killed_is_resumed(tmp_path: Path) -> None:
    events, saved = tmp_path / "events", tmp_path / "saved"
    command = [
        sys.executable, "-m", "rlconform", "train", "tiny_llama_copy_async",
        "grpo.max_num_steps=8", "checkpointing.enabled=true",
        f"logger.events_dir={events}", f"logger.log_dir={tmp_path / 'logs'}",
        f"checkpointing.checkpoint_dir={saved}",
        "checkpointing.save_period=2",
    ]  # fmt: skip
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (saved / "step_000002").is_dir() or driver.poll() is not None)
    assert driver.poll() is None, "it is killed before its end"
    driver.kill()
    driver.wait()
    sources = {record.source for record in records(events)}
    assert len(sources) == 3, "driver, rollout worker, rank"
    wait_until(lambda: not any(psutil.pid_exists(source.pid) for source in sources))

    broken = judge_run([events])
    assert RuleOutcome.PASS not in outcomes(broken).values(), "no rule passes: the log is not whole"
    assert RuleOutcome.FAIL not in outcomes(broken).values()
    assert broken.ended is None

    subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE_S)
    assert set(lost(events)) == sources
    resumed = [one.event for one in records(events) if isinstance(one.event, Resumed)]
    assert len(resumed) == 1
    assert resumed[0].step >= 2
    report = judge_run([events])
    assert report.not_clean() == []
    assert outcomes(report)["resume"] is RuleOutcome.PASS
    assert report.ended == "completed"


def wait_until(condition: Any) -> None:
    due = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < due, "it should have happened by now"
        time.sleep(0.02)
