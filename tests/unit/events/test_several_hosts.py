"""Two processes with the names and wall clocks of two hosts write one log.

driver (this process) ── stamp ──▶ engine (child, other host name, other wall clock)
                      ◀── stamp ──┘
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events import EventWriter, LogReader
from rlconform.events.schema import (
    Committed,
    Feature,
    PromptDispatched,
    RunFinished,
    RunStarted,
    Selected,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsPublished,
)

#: The engine: for each line of its input it writes the events of a group, and answers with a stamp.
ENGINE = """
import socket, sys, time
now, skew_ns = time.time_ns, int(sys.argv[2]) * 10**9
time.time_ns = lambda: now() + skew_ns
socket.gethostname = lambda: "host-b"

from rlconform.events import EventWriter
from rlconform.events.schema import RewardComputed, RolloutFinished, RolloutStarted, WeightsApplied

with EventWriter(sys.argv[1], run="r1", role="engine") as events:
    for line in sys.stdin:
        group, version, stamp = line.split()
        events.observe(int(stamp))
        events.write(WeightsApplied(version=int(version), engine="e"))
        events.write(RolloutStarted(group_id=group, row=0, weight_version=int(version), engine="e"))
        events.write(RolloutFinished(group_id=group, row=0, tokens=5, output=group))
        events.write(RewardComputed(group_id=group, row=0, reward=1.0, output=group))
        print(events.stamp(), flush=True)
"""
STEPS = 3
OF_A_GROUP = [
    "weights_published", "prompt_dispatched", "weights_applied", "rollout_started",
    "rollout_finished", "reward_computed", "committed", "selected", "trained",
]  # fmt: skip

Train = Callable[..., list[str]]


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """``train(skew_s, stamped)``: types of the events of a run, in the order of the merged log."""

    def run(skew_s: int, stamped: bool) -> list[str]:
        command = [sys.executable, "-c", ENGINE, str(tmp_path), str(skew_s)]
        with (
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as engine,
            EventWriter(tmp_path, run="r1", role="driver") as events,
        ):
            drive(events, engine, stamped)
        files = sorted(tmp_path.glob("events-*.jsonl"))
        return [str(record.event.__struct_config__.tag) for record in LogReader(files)]

    return run


def drive(events: EventWriter, engine: subprocess.Popen[str], stamped: bool) -> None:
    assert engine.stdin is not None
    assert engine.stdout is not None
    bound = StalenessBound(definition=StalenessDefinition.START, bound=0)
    events.write(
        RunStarted(
            group_size=1, prompts_per_step=1, staleness=bound, mixed_versions=False, capacity=2,
            rollout_deadline_s=600, step_deadline_s=600, features=[Feature.REWARD, Feature.SYNC],
            stamped=stamped,
        )
    )  # fmt: skip
    for version in range(STEPS):
        group = f"g{version}"
        events.write(WeightsPublished(version=version))
        events.write(PromptDispatched(group_id=group, prompt_id=group, version=version))
        engine.stdin.write(f"{group} {version} {events.stamp() if stamped else 0}\n")
        engine.stdin.flush()
        answered = int(engine.stdout.readline())
        if stamped:
            events.observe(answered)
        events.write(Committed(group_id=group, rows=[0], start_version=version, rewards=[1.0]))
        events.write(Selected(group_id=group, step=version + 1, version=version))
        events.write(Trained(group_id=group, rows=[0], step=version + 1, version=version))
    events.write(RunFinished(reason="completed"))
    engine.stdin.close()


def outcomes(report: RunReport) -> dict[str, RuleOutcome]:
    return {verdict.rule: verdict.outcome for verdict in report.verdicts}


@pytest.mark.parametrize("skew_s", [-3600, 0, 3600])
def test_stamps_merge_the_files_of_two_hosts_in_causal_order(
    train: Train, tmp_path: Path, skew_s: int
) -> None:
    merged = train(skew_s, stamped=True)
    written = [tag for tag in merged if tag != "log_closed"]
    assert written == ["run_started", *OF_A_GROUP * STEPS, "run_finished"]
    report = judge_run([tmp_path])
    assert {info.source.host for info in report.files if info.source} >= {"host-b"}
    assert set(outcomes(report).values()) == {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}


@pytest.mark.parametrize("skew_s", [-3600, 3600])
def test_without_stamps_the_order_of_two_hosts_proves_nothing(
    train: Train, tmp_path: Path, skew_s: int
) -> None:
    merged = train(skew_s, stamped=False)
    assert merged[:10] != ["run_started", *OF_A_GROUP], "the hosts' clocks differ"
    found = outcomes(judge_run([tmp_path]))
    assert RuleOutcome.FAIL not in found.values()
    assert RuleOutcome.INDETERMINATE in found.values(), "records seem to be in a wrong order"
