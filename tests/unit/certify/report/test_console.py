"""The summary in the terminal shows the reasons and the requirement to read first."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.console import print_summary
from rlconform.certify.report.root_causes import RootCause
from rlconform.certify.report.verdict import Certificate, verdict_of
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
    certificate = Certificate(CertifyOptions("acme"), run, list(results), conclusion, causes)
    print_summary(console, certificate)
    return shown.getvalue()


def result(name: str, outcome: Outcome, reason: str = "because") -> RequirementResult:
    ran = [] if outcome is Outcome.NOT_TESTED else ["a check"]
    return RequirementResult(name, outcome, reason, ran)


def test_a_failure_is_explained_before_a_warning() -> None:
    text = summary(result(SHOULD, Outcome.WARN), result(MUST, Outcome.FAIL))
    assert f"rlconform explain {MUST} shows" in text


def test_the_first_root_cause_is_explained_before_its_followers() -> None:
    results = [result(MUST, Outcome.FAIL), result(OTHER, Outcome.FAIL)]
    text = summary(*results, causes=(RootCause([OTHER], "why", [MUST]),))
    assert f"rlconform explain {OTHER} shows" in text


@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.NOT_TESTED])
def test_nothing_is_explained_where_nothing_is_broken(outcome: Outcome) -> None:
    assert "rlconform explain" not in summary(result(MUST, outcome))


def test_unselected_requirements_are_not_listed_as_reasons() -> None:
    text = summary(
        result(MUST, Outcome.FAIL),
        result(OTHER, Outcome.NOT_TESTED, f"1 of 1 checks did not run: {NOT_SELECTED}"),
        result("PUT-01", Outcome.NOT_TESTED, "1 of 1 checks did not run: the run ended early"),
    )
    assert f"  {MUST} FAIL" in text
    assert "  PUT-01 NOT_TESTED" in text
    assert OTHER not in text
