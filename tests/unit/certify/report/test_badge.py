"""``badge.json`` says the verdict in the form that shields.io reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.badge import badge_text
from rlconform.certify.report.document import read_report
from rlconform.certify.report.judge import judge
from rlconform.certify.report.recompute import run_of
from rlconform.certify.results import CheckResult, Outcome, RunRecord
from rlconform.contract import CURRENT_SET


def repair(run: RunRecord) -> None:
    for result in list(run.results.values()):
        run.results[result.id] = CheckResult(result.id, result.requirement, Outcome.PASS)


def stop(run: RunRecord) -> None:
    repair(run)
    run.results.pop(next(reversed(run.results)))
    run.complete = False


@pytest.fixture
def run(issued: Path) -> RunRecord:
    """The run of the report that the other tests use."""
    return run_of(read_report(issued), {})


@pytest.mark.parametrize(
    ("change", "message", "colour"),
    [
        (lambda _: None, "not certified, 3 MUSTs broken", "red"),
        (repair, "certified", "brightgreen"),
        (stop, "partial", "lightgrey"),
    ],
    ids=["broken", "certified", "partial"],
)
def test_the_badge_says_the_verdict(
    run: RunRecord, change: Callable[[RunRecord], None], message: str, colour: str
) -> None:
    change(run)
    certificate = judge(CertifyOptions("acme"), run, [], False, datetime.now(UTC))
    assert json.loads(badge_text(certificate)) == {
        "schemaVersion": 1,
        "label": f"rlconform {CURRENT_SET} unit",
        "message": message,
        "color": colour,
    }


def test_every_report_has_a_badge(issued: Path) -> None:
    badge = json.loads((issued / "badge.json").read_text())
    assert badge["message"] == "not certified, 2 MUSTs broken"  # the third is waived
