"""Gates over what a run wrote: truncated, short, without a metric, NaN, never judged."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rlconform.grpo.metrics.reader import MetricLog, read_metrics
from rlconform.grpo.metrics.writer import MetricWriter
from rlconform.launch.gate_verdict import GateOutcome
from rlconform.launch.gates import (
    events_gate,
    metric_gates,
    parity_gates,
    r3_gate,
    read_log,
    steps_gate,
    throughput_gate,
)
from rlconform.launch.job_folder import JobFolder, create
from rlconform.launch.jobs import ParityGate, ThroughputGate
from rlconform.launch.judge import judge_job, write_verdict
from rlconform.launch.recipes import load_recipe
from rlconform.launch.sites import Site
from rlconform.launch.slurm import JobStatus
from tests.unit.check_run.log_builder import write_files
from tests.unit.check_run.small_log import Log
from tests.unit.grpo.router_replay.test_check_r3 import hashes, replayed, right

NAME = "grpo-llama3.1-8b-instruct-2n8g-fsdp2-ray_store-tiny"


def log_of(*rewards: float, ending: str | None = "finished", planned: int = 3) -> MetricLog:
    steps = {step: {"train/reward": value} for step, value in enumerate(rewards, 1)}
    log = MetricLog(num_steps=planned, steps=steps)
    log.ending = ending  # type: ignore[assignment]
    if ending == "finished":
        log.num_steps = len(rewards)
    return log


@pytest.mark.parametrize(
    ("log", "outcome", "said"),
    [
        (log_of(1, 1, 1), GateOutcome.PASS, "step 3 of 3"),
        (log_of(1, 1, ending=None), GateOutcome.FAIL, "truncated run: it was cut off after step 2"),
        (log_of(1, 1, ending="failed"), GateOutcome.FAIL, "failed run"),
        (log_of(1, ending="stopped"), GateOutcome.FAIL, "stopped run: no run went on"),
        (log_of(1, 1), GateOutcome.FAIL, "step not reached: expected step 3"),
        ("no file", GateOutcome.NOT_RUN, "the gate never ran: no file"),
    ],
)
def test_steps(log: MetricLog | str, outcome: GateOutcome, said: str) -> None:
    verdict = steps_gate(log, 3)
    assert verdict.outcome is outcome
    assert said in verdict.message


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("min(train/reward) > 0.5", "expected min(train/reward) > 0.5; got min(train/reward) = 0"),
        ("min(train/rewarb) > 0", "there is no metric 'train/rewarb'; did you mean 'train/reward'"),
        ("mean(train/reward[-5:]) > 0", "needs more values than the 3 recorded ones"),
    ],
)
def test_an_expression_fails_for_its_reason(expression: str, said: str) -> None:
    (verdict,) = metric_gates(log_of(0, 1, 1), [expression])
    assert verdict.outcome is GateOutcome.FAIL
    assert said in verdict.message


def test_nan_is_never_a_pass() -> None:
    (verdict,) = metric_gates(log_of(1, math.nan, 1), ["max(train/reward) > 0"])
    assert verdict.outcome is GateOutcome.FAIL
    assert "'train/reward' is nan at some step" in verdict.message


def test_gates_without_metrics_never_ran(tmp_path: Path) -> None:
    log = read_log(tmp_path / "metrics.jsonl")
    verdicts = metric_gates(log, ["min(a) > 0", "max(b) > 0"])
    assert [verdict.outcome for verdict in verdicts] == [GateOutcome.NOT_RUN] * 2
    assert "the run wrote no metrics" in verdicts[0].message


def test_events_that_do_not_exist_are_no_pass(tmp_path: Path) -> None:
    (verdict,) = events_gate(tmp_path / "events")
    assert verdict.outcome is GateOutcome.NOT_RUN


def events_in(folder: Path, version: int | None, finished: bool = True) -> Path:
    """Write the events of a run of one group, trained on at a version."""
    log = Log()
    log.generate("a")
    log.train("a", 0, version)
    if finished:
        log.finish()
    folder.mkdir()
    write_files(log.records, folder)
    return folder


def test_each_rule_over_the_events_is_a_gate(tmp_path: Path) -> None:
    good = events_gate(events_in(tmp_path / "good", 0))
    assert len(good) > 5
    stale = {one.gate: one for one in events_gate(events_in(tmp_path / "stale", 7))}
    broken = {gate: one.message for gate, one in stale.items() if not one.passed}
    assert broken.keys() - {one.gate for one in good if not one.passed}
    assert all(gate.startswith("check-run: ") for gate in broken)


def test_events_that_say_too_little_are_no_pass(tmp_path: Path) -> None:
    verdicts = events_gate(events_in(tmp_path / "cut", 0, finished=False))
    messages = [one.message for one in verdicts if one.outcome is GateOutcome.FAIL]
    assert messages
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "events.jsonl").write_text("no JSON\n")
    (broken,) = events_gate(tmp_path / "broken")
    assert broken.outcome is GateOutcome.NOT_RUN


def test_the_trace_of_router_replay(tmp_path: Path) -> None:
    folder = tmp_path / "r3"
    missing = r3_gate(folder)
    assert missing.outcome is GateOutcome.NOT_RUN
    assert "there is none" in missing.message
    folder.mkdir()
    trace = folder / "r3-0.jsonl"

    def judged(lines: Sequence[str]) -> tuple[GateOutcome, str]:
        trace.write_text("".join(f"{line}\n" for line in lines))
        verdict = r3_gate(folder)
        return verdict.outcome, verdict.message

    lines = [record.model_dump_json() for record in right()]
    assert judged(lines) == (GateOutcome.PASS, "5 tokens of 1 rows were replayed")
    other = [*lines[:2], replayed(hashes(seed=1)).model_dump_json(), *lines[3:]]
    outcome, message = judged(other)
    assert outcome is GateOutcome.FAIL
    assert "expected" in message
    outcome, message = judged(lines[:1])
    assert outcome is GateOutcome.FAIL
    assert "the trace proves nothing" in message
    assert judged([*lines, "{"])[0] is GateOutcome.NOT_RUN


PARITY = ParityGate(steps=2, metrics=["train/reward"], rel_tol=1e-3)


@pytest.mark.parametrize(
    ("own", "legacy", "outcome", "said"),
    [
        (log_of(1, 0.5), log_of(1.0005, 0.5, 9), GateOutcome.PASS, "steps 1 to 2"),
        (log_of(1, 0.5), log_of(1, 0.6), GateOutcome.FAIL, "step 2: expected the legacy run's 0.6"),
        (log_of(1, math.nan), log_of(1, math.nan), GateOutcome.FAIL, "got nan"),
        (log_of(1), log_of(1, 2), GateOutcome.NOT_RUN, "this run has no train/reward of step 2"),
        (log_of(1, 2), log_of(1), GateOutcome.NOT_RUN, "the legacy run has no train/reward"),
        (log_of(1, 2), "no run was named", GateOutcome.NOT_RUN, "never ran: no run was named"),
    ],
)
def test_parity(own: MetricLog, legacy: MetricLog | str, outcome: GateOutcome, said: str) -> None:
    (verdict,) = parity_gates(own, legacy, PARITY)
    assert verdict.outcome is outcome
    assert said in verdict.message


@pytest.mark.parametrize(
    ("own", "outcome"),
    [
        (log_of(9, 2, 2, 2), GateOutcome.PASS),
        (log_of(9, 2, 4, 4), GateOutcome.FAIL),
        (log_of(9, math.nan, math.nan), GateOutcome.FAIL),
        (log_of(9), GateOutcome.NOT_RUN),
    ],
)
def test_throughput_is_a_ratio_of_medians(own: MetricLog, outcome: GateOutcome) -> None:
    gate = ThroughputGate(metric="train/reward", max_ratio=1.1, skip_steps=1)
    assert throughput_gate(own, log_of(1, 2, 2, 2), gate).outcome is outcome


def job(folder: Path, name: str, steps: Mapping[int, float]) -> JobFolder:
    made = create(load_recipe(name, ["gates.check_run=false"]), [], Site(), folder)
    with MetricWriter(made.path / "run", 6) as writer:
        for step, reward in steps.items():
            metrics = {"train/engine_kl": 0, "train/engine_prob_error": 1, "train/ratio": 1}
            writer.write(step, metrics | dict.fromkeys(("train/loss", "train/grad_norm"), 1.0)
                         | {"train/reward": reward})  # fmt: skip
    return made


def test_a_job_passes_if_all_gates_do(tmp_path: Path) -> None:
    steps = dict.fromkeys(range(1, 7), 0.5)
    own = job(tmp_path / "own", NAME, steps)
    legacy = job(tmp_path / "legacy", NAME.replace("-ray_store", ""), steps)
    own.keep_baseline(legacy)
    verdict = judge_job(own, None)
    assert [gate.message for gate in verdict.gates if not gate.passed] == []
    assert verdict.passed
    write_verdict(verdict, own)
    written = json.loads((own.path / "verdict.json").read_text())
    assert (written["level"], written["plane"], written["passed"]) == ("e2e", "ray_store", True)
    suite = ElementTree.parse(own.path / "junit.xml").getroot()
    assert suite.get("tests") == str(len(verdict.gates))
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")


def test_a_gate_that_never_ran_fails_the_job(tmp_path: Path) -> None:
    own = job(tmp_path / "own", NAME, dict.fromkeys(range(1, 7), 0.5))
    verdict = judge_job(own, None)
    assert not verdict.passed
    assert {gate.gate for gate in verdict.gates if not gate.passed} == {
        "parity: train/reward", "parity: train/loss", "parity: train/grad_norm",
    }  # fmt: skip
    assert all("never ran" in gate.message for gate in verdict.gates if not gate.passed)
    write_verdict(verdict, own)
    suite = ElementTree.parse(own.path / "junit.xml").getroot()
    assert (suite.get("failures"), suite.get("errors")) == ("0", "3")


def test_another_recipe_is_no_baseline(tmp_path: Path) -> None:
    own = job(tmp_path / "own", NAME, dict.fromkeys(range(1, 7), 0.5))
    own.keep_baseline(own)
    messages = {gate.message for gate in judge_job(own, None).gates if not gate.passed}
    assert len(messages) == 1
    assert "expected --baseline to hold a run of" in messages.pop()


def test_a_failed_job_fails_although_its_metrics_are_good(tmp_path: Path) -> None:
    own = job(tmp_path / "own", NAME.replace("-ray_store", ""), dict.fromkeys(range(1, 7), 0.5))
    assert judge_job(own, None).passed
    (own.path / "logs" / "7").mkdir()
    (own.path / "logs" / "7" / "end").write_text("driver 0\n")
    assert judge_job(own, JobStatus("7", "COMPLETED")).passed
    assert not judge_job(own, JobStatus("7", "FAILED", exit_code=1)).passed


def test_a_stopped_run_is_not_whole_until_it_went_on(tmp_path: Path) -> None:
    with MetricWriter(tmp_path, 2) as writer:
        writer.write(1, {"a": 1})
        writer.stop()
    assert "stopped at a checkpoint after step 1" in read_metrics(writer.path).ended_early()
    with MetricWriter(tmp_path, 2, first_step=2) as writer:
        writer.write(2, {"a": 1})
    assert read_metrics(writer.path).ended_early() == ""
