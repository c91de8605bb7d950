"""The self-test's result: what counts as a kill, and how the matrix shows it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.certify.results import CheckResult, Outcome, RequirementResult, RunRecord
from rlconform.cli import app
from rlconform.contract import Requirement, load_requirements
from rlconform.contract.incidents import load_incidents
from rlconform.mutants.mutant import Mutant, mutant
from rlconform.mutants.registry import all_mutants, one_of_each_module
from rlconform.selftest.classify import (
    TrialOutcome,
    TrialResult,
    enough_kills,
    judge_mutant,
    judge_reference,
)
from rlconform.selftest.kill_matrix import (
    KillCell,
    Line,
    is_alone,
    lines_of,
    matrix_of,
    render_html,
    render_markdown,
)
from rlconform.selftest.runner import DISREGARDS, cases
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


# -- kills ---------------------------------------------------------------------------------------


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


# -- the catalogue -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", all_mutants())
def test_a_mutant_says_what_it_is(name: str) -> None:
    spec, mutant = all_mutants()[name]
    rows = load_requirements()
    assert mutant.fails
    assert mutant.evidence or mutant.chance
    assert not set(mutant.fails) & set(mutant.may_fail)
    assert all(rows[i].scope == "plane" and rows[i].published for i in mutant.fails)
    assert mutant.rationale or mutant.chance
    assert spec.startswith("rlconform.mutants.")
    assert mutant.wraps in {"memory", "ray_store"}


def test_a_decorated_class_is_a_target_of_its_own() -> None:
    assert isinstance(LeavesRowsOut, Mutant)
    assert LeavesRowsOut.name == "mutant/leaves_rows_out"
    assert LeavesRowsOut.rationale == "Leaves rows out."
    client = LeavesRowsOut.open({}, True)
    client.close()


def test_races_are_tried_first_and_references_at_the_front() -> None:
    due = cases(all_mutants(), references=True)
    chances = [case.mutant.chance for case in due if case.mutant is not None]
    assert chances == sorted(chances, reverse=True)
    assert {case.name for case in due if case.mutant is None} >= {"memory", "late"}


def test_the_gate_tries_each_requirement_on_one_of_its_right_planes() -> None:
    due = cases({}, references=True, gate=True)
    assert {case.name.split()[0] for case in due} == {"nested_late", "backwards"}
    for case in due:
        assert case.disregards == DISREGARDS[case.name.split()[0]]
    assert sorted(i for case in due for i in case.requirements) == sorted(load_requirements())


# -- the matrix ----------------------------------------------------------------------------------


@pytest.fixture
def rows() -> dict[str, Requirement]:
    names = ("GET-04", "GET-05", "GET-06", "PUT-02")
    return {name: load_requirements()[name] for name in names}


@mutant(TARGET, "PUT-02", evidence="fp8")
class Widens(MemoryClient):
    """Widens <fp8> rows."""


MUTANTS = {"widens": Widens, "leaves_rows_out": LeavesRowsOut}


def test_the_matrix_knows_who_catches_alone(rows: dict[str, Requirement]) -> None:
    matrix = matrix_of(rows, MUTANTS)
    detail = {row.requirement.id: (row.mutants, row.alone) for row in matrix.rows}
    assert detail["PUT-02"] == (["widens"], ["widens"])
    assert detail["GET-04"] == (["leaves_rows_out"], [])
    assert detail["GET-05"] == ([], [])


def test_cells_show_what_came_against_what_was_declared(rows: dict[str, Requirement]) -> None:
    came = {"GET-04": "a", "PUT-02": "b"}
    judged = [
        TrialResult("leaves_rows_out", TrialOutcome.KILLED_BY_OTHERS_TOO, came, 1.0, "PUT-02: b"),
        TrialResult("widens", TrialOutcome.KILLED, {"PUT-02": "b"}, 1.0),
    ]
    first, second = lines_of(matrix_of(rows, MUTANTS, judged), MUTANTS)
    assert first.name == "leaves_rows_out"
    assert [cell.kind for cell in first.cells] == ["killed", "may", "wrong", "wrong"]
    assert first.wrong
    assert [cell.kind for cell in second.cells] == ["", "", "", "sole"]
    assert not second.wrong


def test_what_was_not_tried_has_no_line(rows: dict[str, Requirement]) -> None:
    judged = [TrialResult("widens", TrialOutcome.KILLED, {"PUT-02": "b"}, 1.0)]
    assert [line.name for line in lines_of(matrix_of(rows, MUTANTS, judged), MUTANTS)] == ["widens"]


def test_the_page_escapes_what_planes_say(rows: dict[str, Requirement]) -> None:
    judged = [
        TrialResult("widens", TrialOutcome.KILLED, {"PUT-02": "<script>"}, 1.0),
        TrialResult("memory", TrialOutcome.PASSED, {}, 1.0),
    ]
    header = {"created": "now", "kit": "1", "host": "here", "summary": "two"}
    page = render_html(matrix_of(rows, MUTANTS, judged), MUTANTS, header)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Widens &lt;fp8&gt; rows." in page
    assert "Right planes" in page


def test_the_table_for_the_docs_has_a_line_for_each_requirement(
    rows: dict[str, Requirement],
) -> None:
    lines = render_markdown(matrix_of(rows, MUTANTS)).splitlines()
    assert lines[2] == "| GET-04 |  | leaves_rows_out |"
    assert lines[5] == "| PUT-02 | widens |  |"


# -- coverage of the catalogue --------------------------------------------------------------------

#: Ids of field failures, in the form used in a mutant's docstring.
FAILURE = re.compile(r"\b[A-Z]{2}-\d{2}\b")
#: Field failures that no plane can show, that only cause a warning, or that no mutant plays.
NOBODY_PLAYS = {
    "NR-10": "an answer that the contract allows; what reads it has to cope, and the kit's does",
    "NR-20": "an error of another type is a warning",
    "NR-21": "the kit plans the micro-batches",
    "NR-22": "the kit mints the width and plans for all ranks",
    "NR-23": "the kit trims before it writes",
    "NR-24": "the kit makes the column jagged",
    "VL-19": "the kit plans for all ranks",
    "AR-08": "the kit splits the rows",
    "MC-03": "it takes two hosts' addresses to be one's",
    "MC-15": "it takes a CUDA device",
    "MC-06": "it takes rows of more than 4 GiB",
    "MC-07": "it takes a plane over TCP, and FAULT-06 is a SHOULD",
    "TQ-15": "the mutant of its check loses reads, not a clear",
    "TQ-17": "the mutant of its check loses a late answer, not a lease",
}


def planes(mutants: dict[str, tuple[str, Mutant]]) -> dict[str, Mutant]:
    return {name: mutant for name, (_, mutant) in mutants.items()}


@pytest.mark.parametrize(
    "row",
    [row for row in load_requirements().values() if row.scope == "plane" and row.published],
    ids=lambda row: row.id,
)
def test_each_requirement_alone_catches_a_mutant_or_says_why_not(row: Requirement) -> None:
    alone = [n for n, m in planes(all_mutants()).items() if is_alone(m) and row.id in m.fails]
    assert bool(alone) is not bool(row.excluded), (alone, row.excluded)


def test_each_field_failure_that_a_plane_can_show_is_played() -> None:
    played = {
        failure for m in planes(all_mutants()).values() for failure in FAILURE.findall(m.rationale)
    }
    shown = [row for row in load_incidents().values() if row.checks and not row.excluded]
    checked = {failure.id for failure in shown}
    assert checked - played == set(NOBODY_PLAYS)
    assert played <= set(load_incidents())


#: The command keeps the address that it is given in the environment; the runner restores this.
NO_RAY = {"RLCONFORM_RAY": None}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--mutant", "no_such"], "no mutant 'no_such'"),
        (["--mutant", "xyzzy"], "rlconform self-test --list shows them"),
        (["--gate", "--races"], "nothing to try"),
        (["--list", "--gate", "--races"], "nothing to try"),
        (["--races", "--mutant", "drops_unknown_ids"], "nothing to try"),
        (["--mutant", "announces_loopback"], "announces_loopback: only several hosts show it"),
        (["--ray-address", "10.0.0.1:1", "--mutant", "drops_unknown_ids"], "on several hosts"),
        (["--ray-address", "10.0.0.1:1", "--races"], "on several hosts"),
    ],
)
def test_a_self_test_of_nothing_is_refused(options: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["self-test", *options], env=NO_RAY)
    assert done.exit_code == 2
    assert says in done.stderr


def test_the_list_tells_of_each_mutant_that_the_other_options_leave() -> None:
    done = CliRunner().invoke(app, ["self-test", "--list", "--races"], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    named = {line.split()[0] for line in done.output.splitlines()[1:] if line.strip()}
    assert named >= {name for name, mutant in planes(all_mutants()).items() if mutant.chance}
    assert "processes_get_reads_reused_slot" in done.output
    assert "CLEAR-07" in done.output
    assert "drops_unknown_ids" not in done.output


def test_a_brief_self_test_has_one_mutant_of_several_processes_of_each_module() -> None:
    brief = one_of_each_module(all_mutants())
    left_out = all_mutants().keys() - brief.keys()
    of_several = {
        name: spec.partition(":")[0]
        for name, (spec, one) in all_mutants().items()
        if not (one.level == "unit" or one.chance or one.several_hosts)
    }
    assert left_out < of_several.keys()
    modules = [module for name, module in of_several.items() if name in brief]
    assert sorted(modules) == sorted({*of_several.values()})


@pytest.mark.parametrize("options", [[], ["--gate"]])
def test_planes_for_several_hosts_are_named_where_they_are_not_tried(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["self-test", "--list", *options], env={"COLUMNS": "200"})
    (line,) = [line for line in done.output.splitlines() if "announces_loopback" in line]
    assert line.startswith("not tried, needs --ray-address of several hosts")


def test_only_planes_for_several_hosts_are_tried_on_them() -> None:
    options = ["self-test", "--list", "--ray-address", "10.0.0.1:6379"]
    done = CliRunner().invoke(app, options, env=NO_RAY | {"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    named = {line.split()[0] for line in done.output.splitlines()[1:] if line.strip()}
    assert named == {name for name, one in planes(all_mutants()).items() if one.several_hosts}
    assert "not tried" not in done.output


def test_empty_cells_of_a_row_are_one_cell_of_the_page() -> None:
    sole, empty = KillCell("sole", "GET-04"), KillCell()
    line = Line("name", "", "", "", False, [empty, empty, sole, sole, empty])
    assert line.runs == [(empty, 2), (sole, 1), (sole, 1), (empty, 1)]
