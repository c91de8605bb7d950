"""What each mutant says of itself, and that together they cover requirements and field failures."""

from __future__ import annotations

import re

import pytest

from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.contract import Requirement, load_requirements
from rlconform.contract.incidents import load_incidents
from rlconform.mutants.mutant import Mutant, mutant
from rlconform.mutants.registry import all_mutants, one_of_each_module
from rlconform.selftest.kill_matrix import is_alone
from rlconform.selftest.runner import DISREGARDS, cases

SAYS = "expected a row"


@mutant(TARGET, "GET-04 GET-06", evidence=SAYS, may_fail="GET-05")
class LeavesRowsOut(MemoryClient):
    """Leaves rows out."""


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
