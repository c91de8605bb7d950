"""A trial of a mutant ends the checks of a requirement once one has failed for its reason."""

from __future__ import annotations

import inspect
import json
import queue
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.certify.isolation import child_process, events
from rlconform.certify.isolation.check_in_flight import CheckInFlight
from rlconform.certify.isolation.events import Event, ProcessEnded
from rlconform.certify.isolation.forkserver import ForkServer
from rlconform.certify.isolation.runner import Runner
from rlconform.certify.isolation.shown import SHOWN, Shown
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.verdict import requirement_results
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.cli import app
from rlconform.cli import certify as command
from rlconform.contract import ConfigError, load_requirements
from rlconform.mutants.mutant import mutant
from rlconform.selftest.classify import TrialOutcome, judge_mutant
from rlconform.selftest.trial import enough_of

SAYS = "expected a row"


@mutant(TARGET, "GET-04 GET-06", evidence=SAYS)
class LeavesRowsOut(MemoryClient):
    """Leaves rows out."""


ENOUGH = enough_of(LeavesRowsOut)
KILL, OTHER = (Outcome.FAIL, f"{SAYS}; got none"), (Outcome.FAIL, "raised KeyError")
PASS, CRASH = (Outcome.PASS, ""), (Outcome.CRASH, "the process that used the plane died")
Said = tuple[Outcome, str]


def result(name: str, requirement: str, said: Said, capability: str = "") -> CheckResult:
    return CheckResult(name, requirement, said[0], capability, said[1])


# -- what is enough ------------------------------------------------------------------------------


def test_the_first_id_needs_the_declared_text_and_others_any_failure() -> None:
    assert ENOUGH == {"GET-04": SAYS, "GET-06": ""}


@pytest.mark.parametrize(
    ("requirement", "said", "enough"),
    [
        ("GET-04", KILL, True),
        ("GET-04", (Outcome.TIMEOUT, KILL[1]), True),
        ("GET-04", OTHER, False),
        ("GET-04", PASS, False),
        ("GET-04", (Outcome.SUITE_ERROR, KILL[1]), False),
        ("GET-04", (Outcome.NOT_TESTED, KILL[1]), False),
        ("GET-06", OTHER, True),
        ("GET-06", PASS, False),
        ("PUT-01", KILL, False),
    ],
)
def test_a_failure_is_enough_if_it_says_what_is_declared(
    requirement: str, said: Said, enough: bool
) -> None:
    assert Shown(ENOUGH).note(result("a", requirement, said), {}) is enough


def test_a_probe_of_what_is_not_declared_shows_nothing() -> None:
    probe = result("a", "GET-04", KILL, "objects")
    assert not Shown(ENOUGH).note(probe, {"objects": "no use for them"})
    assert Shown(ENOUGH).note(probe, {"objects": True})


# -- a run ---------------------------------------------------------------------------------------


class _Told(child_process.TestProcess):
    """A test process that sends given events, and ends."""

    def __init__(self, told: Sequence[Event], log: Path) -> None:
        waiting: queue.Queue[Event] = queue.Queue()
        for event in (*told, ProcessEnded(1, 1)):
            waiting.put(event)
        super().__init__(waiting, 1, log, log)


class _TellingServer(ForkServer):
    """A fork server whose processes tell what they are given, in place of running checks."""

    def __init__(self, told: Sequence[Sequence[Event]], folder: Path) -> None:
        super().__init__()
        self.told, self.started = list(told), list[str]()
        self.log = folder / "log"
        self.log.touch()

    def start(
        self, options: Sequence[str], files: Sequence[str], attached_clients: bool
    ) -> child_process.TestProcess:
        assert files
        assert attached_clients == (not self.started)  # then the level is known to be unit
        options = list(options)
        only = Path(options[options.index("--rlconform-only") + 1]) if self.started else None
        self.started.append(only.read_text("utf-8") if only else "all")
        return _Told(self.told.pop(0), self.log)


CHECKS = [
    PlannedCheck(f"unit/contract/test_get.py::{name}", requirement)
    for name, requirement in (("a", "GET-04"), ("b", "GET-04"), ("c", "GET-04"), ("d", "GET-06"))
]
A, B, C, D = (check.id for check in CHECKS)
OPENING = [
    events.TargetDescribed({"level": "unit", "capabilities": {}}),
    events.PlaneOpening(),
    events.PlaneOpened(),
    events.HealthNoted(),
]


def began_and_ended(check: PlannedCheck, said: Said) -> list[Event]:
    ended = events.CheckEnded(result(check.id, check.requirement, said))
    return [events.CheckBegan(check.id), ended]


def run_of(
    processes: Sequence[Sequence[Event]], folder: Path, enough: dict[str, str]
) -> tuple[RunRecord, _TellingServer]:
    told = [
        [*OPENING, *([events.ChecksCollected(CHECKS)] if number == 0 else []), *each]
        for number, each in enumerate(processes)
    ]
    server = _TellingServer(told, folder)
    try:
        return Runner(CertifyOptions("m", enough=enough), fork_server=server).certify(), server
    finally:
        server.close()


def test_a_run_is_complete_without_the_checks_that_another_one_spares(tmp_path: Path) -> None:
    first = [
        *began_and_ended(CHECKS[0], PASS),
        *began_and_ended(CHECKS[1], KILL),
        *began_and_ended(CHECKS[3], OTHER),
        events.SessionFinished(0.0),
    ]
    run, server = run_of([first], tmp_path, dict(ENOUGH))
    assert run.complete
    assert list(run.results) == [A, B, D]
    assert {check.id: check.left_out for check in run.plan if check.left_out} == {C: SHOWN}
    assert server.started == ["all"]


def test_a_crash_that_is_enough_spares_the_other_checks(tmp_path: Path) -> None:
    dies: list[Event] = [events.CheckBegan(A)]
    goes_on = [*began_and_ended(CHECKS[3], OTHER), events.SessionFinished(0.0)]
    run, server = run_of([dies, goes_on], tmp_path, {"GET-04": "the process that used the plane"})
    assert run.complete
    assert {one.id: one.outcome for one in run.results.values()} == {
        A: Outcome.CRASH,
        D: Outcome.FAIL,
    }
    assert server.started == ["all", D]


def test_a_failure_for_another_reason_spares_none(tmp_path: Path) -> None:
    first = [*began_and_ended(CHECKS[0], OTHER), events.SessionFinished(0.0)]
    rest = [event for check in CHECKS[1:] for event in began_and_ended(check, PASS)]
    run, server = run_of([first, [*rest, events.SessionFinished(0.0)]], tmp_path, dict(ENOUGH))
    assert run.complete
    assert list(run.results) == [A, B, C, D]
    assert server.started == ["all", "\n".join([B, C, D])]


def test_a_certification_runs_every_check(tmp_path: Path) -> None:
    every = [event for check in CHECKS for event in began_and_ended(check, KILL)]
    run, _ = run_of([[*every, events.SessionFinished(0.0)]], tmp_path, {})
    assert list(run.results) == [A, B, C, D]
    assert not any(check.left_out for check in run.plan)


# -- the classification --------------------------------------------------------------------------


def judged(said: Sequence[Said], enough: dict[str, str]) -> tuple[TrialOutcome, int]:
    """How a trial is judged whose checks say this, and how many of them ran."""
    run, shown = RunRecord(plan=list(CHECKS)), Shown(enough)
    for check, one in zip(CHECKS, said, strict=True):
        if check.requirement not in shown.requirements:
            run.results[check.id] = result(check.id, check.requirement, one)
            if shown.note(run.results[check.id], {}):
                run.leave_out(check.requirement, SHOWN)
    results = requirement_results(load_requirements(), run.plan, run.results, "unit", {})
    return judge_mutant("m", LeavesRowsOut, results, not run.pending).kind, len(run.results)


def test_whatever_checks_say_a_trial_is_judged_as_if_all_had_run() -> None:
    kinds, spared = set(), 0
    for said in product((PASS, KILL, OTHER, CRASH), repeat=len(CHECKS)):
        whole, ran = judged(said, {})
        assert ran == len(CHECKS)
        short, ran = judged(said, dict(ENOUGH))
        assert short is whole, said
        kinds.add(whole)
        spared += len(CHECKS) - ran
    assert kinds == {
        TrialOutcome.KILLED,
        TrialOutcome.SURVIVED,
        TrialOutcome.KILLED_FOR_OTHER_REASON,
    }
    assert spared > 0


def test_the_second_of_three_checks_kills_and_spares_the_third() -> None:
    assert judged([PASS, KILL, PASS, OTHER], dict(ENOUGH)) == (TrialOutcome.KILLED, 3)


def test_after_a_failure_for_another_reason_the_next_check_may_kill() -> None:
    assert judged([OTHER, PASS, KILL, OTHER], dict(ENOUGH)) == (TrialOutcome.KILLED, 4)
    other_reason = TrialOutcome.KILLED_FOR_OTHER_REASON
    assert judged([OTHER, PASS, PASS, OTHER], dict(ENOUGH)) == (other_reason, 4)


def test_a_defect_of_the_suite_before_the_kill_is_told() -> None:
    ours = (Outcome.SUITE_ERROR, "NameError: x")
    assert judged([ours, KILL, PASS, OTHER], dict(ENOUGH))[0] is TrialOutcome.SUITE_ERROR


@pytest.mark.parametrize("scripts", [True, False])
def test_a_lost_check_has_a_script_unless_nobody_reads_it(scripts: bool) -> None:
    lost = CheckInFlight(CHECKS[0], 1.0).lost(*CRASH, "", [], CertifyOptions("m", scripts=scripts))
    assert bool(lost.reproducer) is scripts


# -- the option ----------------------------------------------------------------------------------


def test_only_a_trial_says_what_is_enough() -> None:
    asked = CertifyOptions("m", enough=ENOUGH).pytest_arguments()
    assert json.loads(asked[asked.index("--rlconform-enough") + 1]) == ENOUGH
    assert "--rlconform-no-scripts" not in asked
    assert "--rlconform-no-scripts" in CertifyOptions("m", scripts=False).pytest_arguments()
    assert "--rlconform-enough" not in CertifyOptions("m").pytest_arguments()


def test_the_command_says_nothing_of_the_kind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[CertifyOptions] = []

    def certify(options: CertifyOptions, **_: object) -> None:
        asked.append(options)
        raise ConfigError("only the options are of interest")

    monkeypatch.setattr(command.certification, "certify", certify)
    arguments = ["certify", "memory", "-x", "-k", "GET-04", "--out", str(tmp_path / "report")]
    CliRunner().invoke(app, arguments)
    assert [(options.enough, options.scripts) for options in asked] == [({}, True)]
    assert "enough" not in inspect.signature(command.certify).parameters
