"""Defects of rewards, executor and queue: declared well, and found as declared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from rlconform.grpo.history_finding import HistoryFinding
from rlconform.grpo.rewards.executor_history import ANSWERS, WAITS
from rlconform.mutants.async_parts.part_defect import PartDefect
from rlconform.mutants.async_parts.registry import all_part_defects
from rlconform.mutants.async_trainer.registry import all_trainer_defects
from rlconform.mutants.router_replay.registry import all_replay_defects
from rlconform.selftest.classify import GOOD, TrialOutcome, TrialResult
from rlconform.selftest.defect_trials import all_defects, defect_cases
from rlconform.selftest.kill_matrix import DefectTable, matrix_of, render_html
from rlconform.selftest.part_trials import (
    PartCase,
    PartFindings,
    judge_findings,
    judge_right_part,
    part_cases,
)
from rlconform.selftest.parts import PART_RULES, PARTS
from rlconform.selftest.rule_matrix import render_rule_matrix, rule_lines

DEFECTS = all_part_defects()
DROPS = DEFECTS["drops_when_full"]
FORGETS = DEFECTS["batch_of_a_lost_runner_forgotten"]


def found(*findings: HistoryFinding, shown: HistoryFinding | None = None) -> PartFindings:
    """What a trial has found."""
    return PartFindings({one.rule: one for one in findings}, plans=1, shown=shown)


LOST = HistoryFinding(ANSWERS, "expected an outcome of request 0; got none", ("request 0",))


def test_the_catalogue_is_large_and_every_rule_has_a_defect() -> None:
    assert len(DEFECTS) >= 40
    must = Counter(rule for defect in DEFECTS.values() for rule in defect.found_by)
    assert must.keys() == {*PART_RULES}
    assert not DEFECTS.keys() & all_trainer_defects().keys()
    for defect in DEFECTS.values():
        assert defect.rationale
        assert defect.seen
        assert defect.evidence
        assert {*defect.may} <= {*PART_RULES} - {*defect.found_by}
        assert defect.broken.__mro__[1].__module__.startswith("rlconform.grpo.")


#: One defect of each rule. The gate of the self-test tries them all, and the right parts.
ONE_OF_EACH = {
    case.defect.found_by[0]: case for case in part_cases(DEFECTS, right=False) if case.defect
}


@pytest.mark.parametrize("case", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_a_defect_of_each_rule_is_found_as_declared(case: PartCase) -> None:
    result = case.attempt()
    assert result.kind in GOOD, result.detail


def test_a_defect_is_tried_on_its_own_part_beside_the_runs() -> None:
    cases = defect_cases({one.name: one for one in (DROPS, FORGETS)}, right=False)
    assert [case.name for case in cases] == [DROPS.name, FORGETS.name]
    assert {*DEFECTS, *all_trainer_defects(), *all_replay_defects()} == {*all_defects()}
    parts = [case.part.name for case in part_cases({"one": DROPS, "two": FORGETS}, right=False)]
    assert parts == ["trajectory queue", "batching executor"]
    assert len(part_cases({}, right=True)) == len(PARTS)


@pytest.mark.parametrize(
    ("findings", "kind"),
    [
        (found(LOST, shown=LOST), TrialOutcome.KILLED),
        (found(), TrialOutcome.SURVIVED),
        (found(LOST), TrialOutcome.KILLED_FOR_OTHER_REASON),
        (found(LOST, shown=replace(LOST, proof=())), TrialOutcome.KILLED_FOR_OTHER_REASON),
        (
            found(LOST, HistoryFinding("queue_order", "expected", (1,)), shown=LOST),
            TrialOutcome.KILLED_BY_OTHERS_TOO,
        ),
        (found(LOST, HistoryFinding(WAITS, "expected", (1,)), shown=LOST), TrialOutcome.KILLED),
    ],
    ids=lambda one: one.name if isinstance(one, TrialOutcome) else "",
)
def test_findings_are_compared_with_the_declaration(
    findings: PartFindings, kind: TrialOutcome
) -> None:
    assert judge_findings(FORGETS, findings).kind is kind


def test_a_finding_about_a_right_part_is_a_false_alarm() -> None:
    result = judge_right_part("part x", found(LOST))
    assert result.kind is TrialOutcome.FALSE_ALARM
    assert "expected an outcome of request 0" in result.detail


def test_a_class_that_breaks_nothing_survives() -> None:
    class Right(DROPS.broken.__mro__[1]):  # type: ignore[misc]
        """Does nothing wrong."""

    harmless: PartDefect = replace(DROPS, broken=Right)
    (case,) = part_cases({"right": harmless}, right=False)
    assert case.attempt().kind is TrialOutcome.SURVIVED


def test_the_page_and_the_docs_show_parts() -> None:
    result = TrialResult(FORGETS.name, TrialOutcome.KILLED, {ANSWERS: LOST.sentence})
    lines = rule_lines({FORGETS.name: FORGETS}, [result], PART_RULES)
    assert [cell.kind for cell in lines[0].cells].count("killed") == 1
    header = {"created": "now", "kit": "1", "host": "here", "summary": "one"}
    right = judge_right_part("part batching executor", found())
    table = DefectTable(PART_RULES, lines, [right])
    page = render_html(matrix_of({}, {}), {}, header, DefectTable(), table)
    assert FORGETS.name in page
    assert "part batching executor" in page
    assert all(f"| {name} |" in render_rule_matrix(DEFECTS, PART_RULES) for name in DEFECTS)
