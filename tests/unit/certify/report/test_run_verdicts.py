"""The certificate has what check-run says of each training run, rule by rule, in all its forms."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from rlconform._exit_codes import ExitCode
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.isolation import events as pipe
from rlconform.certify.judged_runs import MOST_ANOMALIES, NO_EVENTS, JudgedRun, judge_folder
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.json_report import build_report
from rlconform.certify.report.junit import junit_suite
from rlconform.certify.report.run_verdicts import print_runs
from rlconform.certify.report.verdict import Certificate, requirement_results, verdict_of
from rlconform.certify.results import (
    CheckResult,
    Outcome,
    PlannedCheck,
    RequirementResult,
    RunRecord,
)
from rlconform.certify.scenarios.run_logs import RunLogs
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import load_requirements
from rlconform.events import EventWriter
from rlconform.events.schema import (
    Committed,
    Feature,
    PromptDispatched,
    RewardComputed,
    RolloutFinished,
    RolloutStarted,
    RunEvent,
    RunFinished,
    RunStarted,
    Selected,
    StalenessBound,
    StalenessDefinition,
    Trained,
    WeightsApplied,
)

KNOWN = load_requirements()
CHECK = PlannedCheck("e2e/contract/test_async_training.py::test_x", "ASYNC-02", level="e2e")
BOUND = StalenessBound(definition=StalenessDefinition.START, bound=0)


def events_of(groups: Sequence[str], *, trained: int = 1, finished: bool = True) -> list[RunEvent]:
    """The events of a run of one step per group; each group is trained on ``trained`` times."""
    written: list[RunEvent] = [
        RunStarted(
            group_size=1, prompts_per_step=1, staleness=BOUND, mixed_versions=False,
            rollout_deadline_s=60, step_deadline_s=60, features=[Feature.REWARD],
        ),
    ]  # fmt: skip
    for version, group in enumerate(groups):
        step = version + 1
        written += [
            WeightsApplied(version=version, engine="e"),
            PromptDispatched(group_id=group, prompt_id=group, version=version, step=step),
            RolloutStarted(group_id=group, row=0, weight_version=version, engine="e"),
            RolloutFinished(group_id=group, row=0, tokens=3, output=group),
            RewardComputed(group_id=group, row=0, reward=1.0, output=group),
            Committed(group_id=group, rows=[0], start_version=version, rewards=[1.0]),
            Selected(group_id=group, step=step, version=version),
            *[Trained(group_id=group, rows=[0], step=step, version=version)] * trained,
        ]
    return [*written, *[RunFinished(reason="completed")] * finished]


def write(folder: Path, written: Sequence[RunEvent]) -> Path:
    with EventWriter(folder, run="r", role="driver") as writer:
        for event in written:
            writer.write(event)
    return folder


def judged(tmp_path: Path, written: Sequence[RunEvent]) -> JudgedRun:
    return judge_folder("asynchronous", write(tmp_path / "run", written))


def names(run: JudgedRun, outcome: RuleOutcome) -> list[str]:
    return [rule.rule for rule in run.of(outcome)]


@pytest.fixture
def right(tmp_path: Path) -> JudgedRun:
    return judged(tmp_path / "right", events_of(["a", "b"]))


@pytest.fixture
def wrong(tmp_path: Path) -> JudgedRun:
    groups = [f"[red]<b>{number}" for number in range(15)]
    return judged(tmp_path / "wrong", events_of(groups, trained=2))


@pytest.fixture
def undecided(tmp_path: Path) -> JudgedRun:
    return judged(tmp_path / "undecided", events_of(["a"], finished=False))


def record_of(outcome: Outcome, *runs: JudgedRun, evidence: str = "") -> RunRecord:
    result = CheckResult(CHECK.id, CHECK.requirement, outcome, evidence=evidence, runs=list(runs))
    target = {"name": "acme", "version": "1", "level": "e2e", "capabilities": {}}
    return RunRecord(target, [CHECK], {CHECK.id: result}, seconds=1.0, complete=True)


def test_a_run_is_judged_rule_by_rule(right: JudgedRun, wrong: JudgedRun) -> None:
    assert names(right, RuleOutcome.FAIL) == names(right, RuleOutcome.INDETERMINATE) == []
    assert right.events == 18
    assert right.verdict == "The run keeps all 10 rules that apply to it"
    (rule,) = wrong.of(RuleOutcome.FAIL)
    assert (rule.rule, rule.count, len(rule.anomalies)) == ("exactly_once", 15, MOST_ANOMALIES)
    assert rule.anomalies[0].proven
    assert len(rule.anomalies[0].proof) == 2


def test_a_run_without_events_passes_no_rule(tmp_path: Path) -> None:
    for folder in (tmp_path / "never made", write(tmp_path / "empty", [])):
        run = judge_folder("asynchronous", folder)
        assert len(run.rules) == 12
        assert {rule.outcome for rule in run.rules} == {RuleOutcome.INDETERMINATE}
        assert {tuple(rule.missing) for rule in run.rules} == {(NO_EVENTS,)}


class TestRunLogs:
    """What a check does with the verdict of its run."""

    @pytest.fixture
    def kept(self) -> list[JudgedRun]:
        return []

    @pytest.fixture
    def logs(self, tmp_path: Path, kept: list[JudgedRun]) -> RunLogs:
        return RunLogs(tmp_path, kept)

    @staticmethod
    def run(
        logs: RunLogs, written: Sequence[RunEvent], error: Exception | None = None, name: str = "it"
    ) -> None:
        """Judge a run that writes these events, if any, and then raises."""
        with logs.judging(name) as option:
            if written:
                write(Path(option.removeprefix("logger.events_dir=")), written)
            if error is not None:
                raise error

    def test_a_right_run_passes(self, logs: RunLogs, kept: list[JudgedRun]) -> None:
        for name in ("first", "second"):
            self.run(logs, events_of(["a"]), name=name)
        assert [(run.name, run.events) for run in kept] == [("first", 10), ("second", 10)]

    def test_a_rule_that_fails_breaks_the_check(self, logs: RunLogs, kept: list[JudgedRun]) -> None:
        with pytest.raises(ContractViolation) as raised:
            self.run(logs, events_of(["a"], trained=2))
        assert "expected a run (it) that rule exactly_once of check-run passes" in str(raised.value)
        assert names(kept[0], RuleOutcome.FAIL) == ["exactly_once"]

    @pytest.mark.parametrize("wrote", [None, False], ids=["no events", "no end"])
    def test_an_undecided_run_is_not_tested(
        self, logs: RunLogs, kept: list[JudgedRun], wrote: bool | None
    ) -> None:
        with pytest.raises(pytest.skip.Exception) as raised:
            self.run(logs, [] if wrote is None else events_of(["a"], finished=wrote))
        assert "decide not every rule" in str(raised.value)
        assert kept[0].of(RuleOutcome.INDETERMINATE)

    def test_the_error_of_a_run_goes_on_and_its_events_are_judged(
        self, logs: RunLogs, kept: list[JudgedRun]
    ) -> None:
        with pytest.raises(TimeoutError):
            self.run(logs, events_of(["a"], trained=2), TimeoutError())
        assert names(kept[0], RuleOutcome.FAIL) == ["exactly_once"]


def test_the_verdict_travels_to_the_runner(wrong: JudgedRun, undecided: JudgedRun) -> None:
    result = CheckResult(CHECK.id, CHECK.requirement, Outcome.FAIL, runs=[wrong, undecided])
    sent = pipe.CheckEnded(result)
    assert pipe.decode(pipe.encode(sent).decode()) == sent


def results_of(run: RunRecord) -> list[RequirementResult]:
    found = requirement_results(KNOWN, run.plan, run.results, "e2e", {})
    return [result for result in found if result.id == CHECK.requirement]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.PASS, ExitCode.SUCCESS),
        (Outcome.FAIL, ExitCode.FAILURE),
        (Outcome.NOT_TESTED, ExitCode.FAILURE),
    ],
)
def test_the_certificate_depends_on_the_run(outcome: Outcome, code: ExitCode) -> None:
    run = record_of(outcome, evidence="the events decide not every rule")
    assert verdict_of(KNOWN, results_of(run), complete=True).exit_code is code


def test_the_report_has_a_part_for_runs(right: JudgedRun, wrong: JudgedRun) -> None:
    run = record_of(Outcome.FAIL, right, wrong)
    results = results_of(run)
    conclusion = verdict_of(KNOWN, results, complete=True)
    report = build_report(Certificate(CertifyOptions("acme"), run, results, conclusion))
    report = json.loads(json.dumps(report))
    assert report["schema"] == 3
    first, second = report["runs"]
    assert (first["check"], first["requirement"]) == (CHECK.id, CHECK.requirement)
    assert first["name"] == "asynchronous"
    assert {rule["outcome"] for rule in first["rules"]} == {"pass", "not_applicable"}
    assert second["rules"] == json.loads(json.dumps(asdict(wrong)))["rules"]
    assert "runs" not in report["checks"][0], "they are in one place"


def shown(run: RunRecord) -> str:
    text = StringIO()
    print_runs(Console(file=text, width=160), run)
    return text.getvalue()


def test_the_terminal_shows_each_rule(
    right: JudgedRun, wrong: JudgedRun, undecided: JudgedRun
) -> None:
    text = shown(record_of(Outcome.FAIL, right, wrong, undecided))
    assert "3 runs" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line and line[0] != " "}
    assert lines["exactly_once"].split()[1:5] == ["1", "FAIL,", "2", "pass"]
    assert "1 indeterminate, 2 pass" in lines["liveness"]
    assert "3 n/a" in lines["plane_ops"]
    assert "expected each row of [red]<b>0 in one update; got rows [0] in a second one" in text
    assert "and 13 more" in text
    assert "missing: run_finished" in text
    assert "ASYNC-02, asynchronous: The run breaks 1 of 12 rules: exactly_once" in text


def test_the_terminal_shows_nothing_where_no_run_was_judged() -> None:
    assert shown(record_of(Outcome.PASS)) == ""


def cases(suite: ElementTree.Element) -> dict[str, list[str]]:
    """Per rule the tag below its case."""
    return {
        case.get("name", ""): [child.tag for child in case]
        for case in suite
        if case.get("classname", "").startswith("check-run ")
    }


def test_junit_has_a_case_per_rule(wrong: JudgedRun, undecided: JudgedRun) -> None:
    run = record_of(Outcome.FAIL, wrong)
    suite = junit_suite(run, results_of(run))
    found = cases(suite)
    assert len(found) == 12
    assert found["exactly_once"] == ["failure"]
    assert found["accounting"] == []
    assert found["plane_ops"] == ["skipped"]
    assert suite.get("tests") == "13"
    assert suite.get("failures") == "2", "the check, and the rule"
    run = record_of(Outcome.NOT_TESTED, undecided)
    suite = junit_suite(run, results_of(run))
    assert suite.get("failures") == "0"
    (liveness,) = [case for case in suite if case.get("name") == "liveness"]
    assert "missing: run_finished" in liveness[0].get("message", "")


def test_junit_skips_the_rules_of_a_waived_check(wrong: JudgedRun) -> None:
    run = record_of(Outcome.FAIL, wrong)
    waived = RequirementResult(CHECK.requirement, Outcome.DEVIATION, "known, tracker/1")
    suite = junit_suite(run, [waived])
    assert suite.get("failures") == "0"
    assert cases(suite)["exactly_once"] == ["skipped"]
