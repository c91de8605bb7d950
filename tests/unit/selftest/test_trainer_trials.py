"""Defects of the trainer: declared well, planted for a block only, and judged rightly."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.rules import ALL_RULES
from rlconform.grpo.rollout import rollout_events
from rlconform.grpo.simulation import engines
from rlconform.mutants.async_trainer.defect import TrainerDefect
from rlconform.mutants.async_trainer.registry import all_trainer_defects
from rlconform.mutants.defect import planted
from rlconform.selftest.classify import GOOD, TrialOutcome
from rlconform.selftest.defect_trials import run_defect_cases
from rlconform.selftest.kill_matrix import DefectTable, matrix_of, render_html
from rlconform.selftest.rule_matrix import RULES, render_rule_matrix, rule_lines
from rlconform.selftest.trainer_trials import (
    judge_defect,
    judge_right_run,
    trainer_cases,
)

DEFECTS = all_trainer_defects()
TORN = DEFECTS["torn_weights_kept"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    """What ``check-run`` says of the run with torn weights."""
    folder = tmp_path_factory.mktemp("torn")
    assert TORN.write(folder) == ""
    return judge_run([folder])


def test_the_catalogue_is_large_and_says_where_each_defect_comes_from() -> None:
    assert len(DEFECTS) >= 50
    for defect in DEFECTS.values():
        assert defect.rationale
        assert defect.seen
        assert set(defect.found_by) | set(defect.may) <= set(RULES)
        assert not set(defect.found_by) & set(defect.may)
        assert bool(defect.found_by) != bool(defect.hidden)
        assert bool(defect.evidence) != bool(defect.hidden)


def test_every_rule_has_a_defect_that_it_must_find() -> None:
    must = Counter(rule for defect in DEFECTS.values() for rule in defect.found_by)
    assert must.keys() == {rule.name for rule in ALL_RULES}


def test_each_defect_is_a_subclass_of_a_class_of_the_package_itself() -> None:
    for defect in DEFECTS.values():
        base = defect.broken.__mro__[1]
        assert base.__module__.startswith(("rlconform.grpo.", "rlconform.backends.memory"))


def test_a_planted_class_is_taken_away_again() -> None:
    before = rollout_events.RolloutEvents
    with planted(TORN.broken):
        assert engines.RolloutEvents is rollout_events.RolloutEvents is TORN.broken
    assert engines.RolloutEvents is rollout_events.RolloutEvents is before


def test_a_defect_that_is_found_as_declared_is_killed(report: RunReport) -> None:
    result = judge_defect(TORN, report)
    assert result.kind is TrialOutcome.KILLED
    assert result.detail == "2 records in its proof"
    assert list(result.broken) == ["versions"]


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        ({"found_by": ("versions", "bias")}, TrialOutcome.SURVIVED),
        ({"evidence": "no such text"}, TrialOutcome.KILLED_FOR_OTHER_REASON),
        ({"found_by": (), "hidden": "because"}, TrialOutcome.KILLED_BY_OTHERS_TOO),
    ],
    ids=lambda one: "" if isinstance(one, dict) else one.name,
)
def test_a_wrong_declaration_is_noticed(
    report: RunReport, declared: dict[str, object], kind: TrialOutcome
) -> None:
    result = judge_defect(replace(TORN, **declared), report)  # type: ignore[arg-type]
    assert result.kind is kind
    assert result.kind not in GOOD


def test_a_rule_that_was_not_declared_is_noticed(report: RunReport) -> None:
    found = next(one for one in report.verdicts if one.rule == "versions")
    more = replace(report, verdicts=(*report.verdicts, replace(found, rule="staleness")))
    result = judge_defect(TORN, more)
    assert result.kind is TrialOutcome.KILLED_BY_OTHERS_TOO
    assert result.detail.startswith("staleness: expected the same weights")


def test_an_alarm_about_a_right_run_is_false(report: RunReport) -> None:
    result = judge_right_run("run", report)
    assert result.kind is TrialOutcome.FALSE_ALARM
    assert "versions: expected the same weights" in result.detail


def test_a_right_run_passes() -> None:
    (result,) = run_defect_cases(trainer_cases({}, right=True)[:1])
    assert (result.kind, result.broken) == (TrialOutcome.PASSED, {})


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_every_defect_is_found_as_declared(defect: TrainerDefect, tmp_path: Path) -> None:
    end = defect.write(tmp_path)
    result = judge_defect(defect, judge_run([tmp_path]), end)
    assert result.kind in GOOD, result.detail
    assert set(result.broken) == {*defect.found_by, *defect.may}, "declared and not found"


def test_the_page_and_the_docs_show_rules_and_defects(report: RunReport) -> None:
    result = judge_defect(TORN, report)
    lines = rule_lines({TORN.name: TORN}, [result])
    assert [cell.kind for cell in lines[0].cells].count("sole") == 1
    header = {"created": "now", "kit": "1", "host": "here", "summary": "one"}
    right = judge_right_run("run in_order: restart", report)
    page = render_html(matrix_of({}, {}), {}, header, DefectTable(RULES, lines, [right]))
    assert "torn_weights_kept" in page
    assert "run in_order: restart" in page
    table = render_rule_matrix(DEFECTS)
    assert all(f"| {name} |" in table for name in DEFECTS)
