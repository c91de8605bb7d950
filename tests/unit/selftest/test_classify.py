"""What counts as a kill, of one trial and of the seeds of a race."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.certify.results import CheckResult, Outcome, RequirementResult, RunRecord
from rlconform.contract import load_requirements
from rlconform.mutants.mutant import mutant
from rlconform.selftest.classify import (
    TrialOutcome,
    enough_kills,
    judge_mutant,
    judge_reference,
)
from rlconform.selftest.runner import DISREGARDS
from rlconform.selftest.trial import counted

SAYS = "expected a row"


@mutant(TARGET, "GET-04 GET-06", evidence=SAYS, may_fail="GET-05")
class LeavesRowsOut(MemoryClient):
    """Leaves rows out."""


def failed(name: str, evidence: str = f"{SAYS}; got none") -> RequirementResult:
    return RequirementResult(name, Outcome.FAIL, evidence, [], [evidence])


PASSED = RequirementResult("PUT-01", Outcome.PASS)
DECLARED = [PASSED, failed("GET-04"), failed("GET-06")]


def kind_of(results: list[RequirementResult], complete: bool = True) -> TrialOutcome:
    return judge_mutant("m", LeavesRowsOut, results, complete).kind


def test_a_kill_needs_every_declared_id() -> None:
    assert kind_of(DECLARED) is TrialOutcome.KILLED
    assert kind_of(DECLARED[:2]) is TrialOutcome.SURVIVED
    assert kind_of([PASSED]) is TrialOutcome.SURVIVED
    assert "GET-06" in judge_mutant("m", LeavesRowsOut, DECLARED[:2]).detail


def test_a_kill_needs_the_declared_reason() -> None:
    other = failed("GET-04", "the plane's get_samples raised KeyError")
    assert kind_of([other, failed("GET-06")]) is TrialOutcome.KILLED_FOR_OTHER_REASON
    both = replace(other, failures=[*other.failures, f"{SAYS}, that is"])
    assert kind_of([both, failed("GET-06")]) is TrialOutcome.KILLED


def test_an_id_that_was_not_declared_is_told() -> None:
    judged = judge_mutant("m", LeavesRowsOut, [*DECLARED, failed("PUT-02", "widened")])
    assert judged.kind is TrialOutcome.KILLED_BY_OTHERS_TOO
    assert judged.detail == "PUT-02: widened"


def test_what_may_fail_may() -> None:
    assert kind_of([*DECLARED, failed("GET-05")]) is TrialOutcome.KILLED


def test_a_broken_should_counts() -> None:
    warned = RequirementResult("TAG-03", Outcome.WARN, "lost", [], ["lost"])
    blemished = RequirementResult("TAG-03", Outcome.WARN, "raised KeyError")
    assert kind_of([*DECLARED, warned]) is TrialOutcome.KILLED_BY_OTHERS_TOO
    assert kind_of([*DECLARED, blemished]) is TrialOutcome.KILLED


def test_our_own_error_is_never_a_kill() -> None:
    ours = RequirementResult("PUT-01", Outcome.SUITE_ERROR, "NameError: x")
    assert kind_of([*DECLARED, ours]) is TrialOutcome.SUITE_ERROR
    assert kind_of(DECLARED, complete=False) is TrialOutcome.SUITE_ERROR


def test_a_check_that_could_not_run_is_no_survival() -> None:
    late = RequirementResult("GET-06", Outcome.NOT_TESTED, "1 of 1 checks did not run: late")
    judged = judge_mutant("m", LeavesRowsOut, [*DECLARED[:2], late])
    assert (judged.kind, judged.detail) == (TrialOutcome.SUITE_ERROR, f"GET-06: {late.reason}")


def test_a_right_plane_breaks_nothing() -> None:
    assert judge_reference("r", [PASSED]).kind is TrialOutcome.PASSED
    alarm = judge_reference("r", [PASSED, failed("GET-04")])
    assert (alarm.kind, alarm.detail) == (TrialOutcome.FALSE_ALARM, f"GET-04: {SAYS}; got none")
    assert judge_reference("r", [PASSED], complete=False).kind is TrialOutcome.SUITE_ERROR


def test_a_right_plane_may_disregard_a_declared_should() -> None:
    warned = RequirementResult("REG-08", Outcome.WARN, "lost", [], ["lost"])
    assert judge_reference("r", [warned]).kind is TrialOutcome.FALSE_ALARM
    assert judge_reference("r", [warned], disregards=["REG-08"]).kind is TrialOutcome.PASSED
    requirements = load_requirements()
    shoulds = {one for ids in DISREGARDS.values() for one in ids}
    assert {requirements[one].level for one in shoulds} == {"SHOULD"}


@pytest.mark.parametrize(
    ("kills", "seeds", "enough"), [(18, 20, True), (17, 20, False), (0, 0, False), (1, 1, True)]
)
def test_nine_seeds_in_ten_show_a_race(kills: int, seeds: int, enough: bool) -> None:
    assert enough_kills(kills, seeds) is enough


def test_a_turn_that_fails_for_another_reason_is_no_kill_and_is_told() -> None:
    run = RunRecord(target={}, complete=True)
    outcomes = [
        ("a[turn0]", Outcome.FAIL, "lost: r1"),
        ("a[turn1]", Outcome.FAIL, "hung: a put"),
        ("b[turn1]", Outcome.NOT_TESTED, ""),
        ("a[turn2]", Outcome.PASS, ""),
        ("b[turn2]", Outcome.FAIL, "lost: r2"),
        ("a[turn3]", Outcome.PASS, ""),
    ]
    for name, outcome, evidence in outcomes:
        run.results[name] = CheckResult(name, "CLEAR-07", outcome=outcome, evidence=evidence)
    races = counted(run, "lost")
    assert (races.seeds, races.kills, races.errors) == (4, 2, ())
    assert races.detail == "2 of 4 seeds; 1 failed for another reason: hung: a put"
    assert replace(races, others=()).detail == "2 of 4 seeds"
    both = races + replace(races, others=())
    assert (both.seeds, both.kills, both.others) == (8, 4, races.others)


def test_a_single_turn_has_no_number() -> None:
    run = RunRecord(target={}, complete=True)
    run.results["a"] = CheckResult("a", "CLEAR-07", outcome=Outcome.FAIL, evidence="lost: r1")
    run.results["b"] = CheckResult("b", "CLEAR-07", outcome=Outcome.PASS)
    assert (counted(run, "lost").seeds, counted(run, "lost").kills) == (1, 1)
