"""What the terminal shows at the end: the reasons, and the requirement to read about first."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from rlconform.certify.report.console import print_summary
from rlconform.certify.report.root_causes import RootCause
from rlconform.certify.report.verdict import verdict_of
from rlconform.certify.results import NOT_SELECTED, Outcome, RequirementResult, RunRecord
from rlconform.contract import load_requirements

KNOWN = load_requirements()
SHOULD, MUST, OTHER = "REG-05", "CLAIM-04", "GET-04"


def summary(*results: RequirementResult, causes: tuple[RootCause, ...] = ()) -> str:
    assert (KNOWN[SHOULD].level, KNOWN[MUST].level, KNOWN[OTHER].level) == (
        "SHOULD",
        "MUST",
        "MUST",
    )
    shown = StringIO()
    run = RunRecord({"name": "acme", "level": "unit"}, seconds=1.0)
    conclusion = verdict_of(KNOWN, results, complete=True)
    console = Console(file=shown, width=200)
    print_summary(console, run, list(results), conclusion, causes)
    return shown.getvalue()


def result(name: str, outcome: Outcome, reason: str = "because") -> RequirementResult:
    ran = [] if outcome is Outcome.NOT_TESTED else ["a check"]
    return RequirementResult(name, outcome, reason, ran)


def test_a_failure_is_explained_before_a_warning() -> None:
    said = summary(result(SHOULD, Outcome.WARN), result(MUST, Outcome.FAIL))
    assert f"rlconform explain {MUST} says" in said


def test_the_first_root_cause_is_explained_before_what_follows() -> None:
    results = [result(MUST, Outcome.FAIL), result(OTHER, Outcome.FAIL)]
    said = summary(*results, causes=(RootCause([OTHER], "why", [MUST]),))
    assert f"rlconform explain {OTHER} says" in said


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.NOT_TESTED])
def test_nothing_is_explained_where_nothing_is_broken(outcome: Outcome) -> None:
    assert "rlconform explain" not in summary(result(MUST, outcome))


def test_what_was_not_selected_is_no_reason_worth_a_line() -> None:
    said = summary(
        result(MUST, Outcome.FAIL),
        result(OTHER, Outcome.NOT_TESTED, f"1 of 1 checks did not run: {NOT_SELECTED}"),
        result("PUT-01", Outcome.NOT_TESTED, "1 of 1 checks did not run: the run ended early"),
    )
    assert f"  {MUST} FAIL" in said
    assert "  PUT-01 NOT_TESTED" in said
    assert OTHER not in said
