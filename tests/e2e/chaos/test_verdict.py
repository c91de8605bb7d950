"""The verdict of a chaos run refuses every wrong end; faults and the tail of a log are as said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from rlconform.events import EventWriter
from rlconform.events.schema import (
    LogOpened,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    ScoringFinished,
    ScoringStarted,
)

from .faults import Kill, Lose, Slow, Stop, is_stopped
from .run_state import LogTail, RunState
from .scenarios import SCENARIOS
from .verdict import Ends, GoesOn, Observed, complaints
from .victims import Role, find_victim

WHOLE = Observed(
    exit_code=0, seconds=5.0, stderr="", ended="completed", trained=48, wanted=48,
    victim="rollout 7", lost=["rollout 7"],
)  # fmt: skip
FAILED = replace(
    WHOLE, exit_code=1, ended="failed", trained=3, stderr="rlconform: train: WorkerDied: it died\n"
)
DIED = Ends(frozenset({"WorkerDied"}))


def test_a_whole_run_and_a_typed_end_are_right() -> None:
    assert complaints(WHOLE, GoesOn()) == []
    assert complaints(FAILED, DIED) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exit_code": None}, "expected the run to end"),
        ({"exit_code": 1}, "expected exit code 0"),
        ({"ended": None}, "run_finished completed"),
        ({"trained": 47}, "expected 48 groups"),
        ({"found": ["accounting: lost"]}, "accounting: lost"),
        ({"lost": []}, "expected the log to name rollout 7"),
        ({"left": ["raylet"]}, "expected no process to be left; got raylet"),
        ({"stderr": "Traceback (most recent call last)"}, "an error in one line"),
    ],
)
def test_a_run_that_does_not_go_on_as_it_must_is_refused(change: Any, said: str) -> None:
    assert any(said in line for line in complaints(replace(WHOLE, **change), GoesOn()))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"exit_code": None}, "expected the run to end"),
        ({"exit_code": 0}, "an exit code that is not 0"),
        ({"exit_code": -9, "stderr": ""}, "got '' and -9"),
        ({"stderr": "rlconform: train: RuntimeError: what?"}, "got 'RuntimeError'"),
        ({"stderr": FAILED.stderr + "Traceback (most"}, "an error in one line"),
        ({"ended": "completed"}, "run_finished failed"),
        ({"ended": None}, "run_finished failed"),
        ({"found": ["plane_ops: gone"]}, "plane_ops: gone"),
        ({"lost": []}, "to name rollout 7"),
        ({"left": ["raylet"]}, "expected no process to be left"),
    ],
)
def test_an_end_that_is_not_typed_is_refused(change: Any, said: str) -> None:
    assert any(said in line for line in complaints(replace(FAILED, **change), DIED))


def test_what_a_rule_must_find_is_missed_if_it_does_not() -> None:
    ending = replace(DIED, rules=frozenset({"plane_ops"}))
    assert complaints(replace(FAILED, found=["plane_ops: gone"]), ending) == []
    assert any("to find it by ['plane_ops']" in line for line in complaints(FAILED, ending))


def test_a_fault_stops_its_process_when_it_says() -> None:
    assert [is_stopped(Stop(2.0), at) for at in (0.0, 1.9, 2.0)] == [True, True, False]
    assert is_stopped(Stop(), 1e9)
    assert not is_stopped(Kill(), 0.0)
    assert not is_stopped(Lose("put"), 0.0)
    ticks = [is_stopped(Slow(10), at / 1000) for at in range(1000)]
    assert 0.88 < sum(ticks) / len(ticks) < 0.92


def test_the_state_of_a_run_is_read_from_a_growing_log(tmp_path: Path) -> None:
    tail, state = LogTail(tmp_path), RunState()
    with EventWriter(tmp_path, run="r", role="rollout", rank=1) as writer:
        for event in (RunStarted(), RolloutStarted(group_id="g", row=0)):
            writer.write(event)
        path, pid = writer.path, writer.source.pid
        assert path is not None
        whole = path.read_bytes()
        path.write_bytes(whole[:-5])
        assert [type(one.event) for one in tail.poll()] == [RunStarted]
        path.write_bytes(whole)
        (started,) = tail.poll()
        state.observe(started)
        victim = find_victim(Role.ROLLOUT_ACTOR, state, [], rank=1)
        assert victim is not None
        assert victim.process == psutil.Process(pid)
        assert victim.busy()
        assert find_victim(Role.ROLLOUT_ACTOR, state, []) is None
        writer.write(RolloutFinished(group_id="g", row=0))
        for record in tail.poll():
            state.observe(record)
        assert not victim.busy()


def test_the_page_lists_every_scenario_once() -> None:
    page = (Path(__file__).parents[3] / "docs/chaos.md").read_text("utf-8")
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == [scenario.name for scenario in SCENARIOS]


def test_a_reward_worker_is_busy_while_it_has_a_batch_and_the_queue_always(tmp_path: Path) -> None:
    tail, state = LogTail(tmp_path), RunState()
    with (
        EventWriter(tmp_path, run="r", role="reward") as reward,
        EventWriter(tmp_path, run="r", role="queue") as queue,
    ):
        queue.write(LogOpened())
        reward.write(ScoringStarted(sample_ids=["g_g0"]))
        for record in tail.poll():
            state.observe(record)
        victims = [find_victim(role, state, []) for role in (Role.REWARD_WORKER, Role.QUEUE)]
        assert [one is not None and one.busy() for one in victims] == [True, True]
        reward.write(ScoringFinished(scored=1))
        for record in tail.poll():
            state.observe(record)
        assert [one is not None and one.busy() for one in victims] == [False, True]
