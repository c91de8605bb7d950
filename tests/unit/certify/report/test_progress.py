"""What a run shows while it runs: failures as they come, how far it is, what failed before."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from rlconform.certify.isolation import events
from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.console import MOST_LINES, QUIET_S, CertifyProgress
from rlconform.certify.report.document import CheckPart, ReportDocument, read_report
from rlconform.certify.report.earlier_run import failed_checks, seconds_of_checks
from rlconform.certify.report.time_left import in_words, seconds_left
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.contract import ConfigError

SLOW, FAST = "unit/properties/test_slow.py::test_", "unit/contract/test_fast.py::test_"


def run_of(fast: int, slow: int, done_fast: int, done_slow: int) -> RunRecord:
    """A run whose fast checks take 0.1 s and whose slow ones take 10 s."""
    ids = [f"{FAST}{n}" for n in range(fast)] + [f"{SLOW}{n}" for n in range(slow)]
    run = RunRecord({"name": "acme"}, [PlannedCheck(one, "GET-01") for one in ids])
    done = [f"{FAST}{n}" for n in range(done_fast)] + [f"{SLOW}{n}" for n in range(done_slow)]
    for one in done:
        seconds = 0.1 if one.startswith(FAST) else 10.0
        run.results[one] = CheckResult(one, "GET-01", Outcome.PASS, seconds=seconds)
    return run


def test_a_pending_check_takes_as_long_as_those_of_its_folder() -> None:
    assert seconds_left(run_of(200, 200, 100, 100)) == pytest.approx(100 * 0.1 + 100 * 10, rel=0.05)


def test_one_slow_check_does_not_make_its_folder_slow() -> None:
    left = seconds_left(run_of(200, 200, 100, 1))
    assert left is not None
    assert 199 < left < 199 * 10 / 4


def test_an_earlier_run_tells_what_this_one_has_not_seen() -> None:
    earlier = {f"{FAST}{n}": 0.05 for n in range(100)} | {f"{SLOW}{n}": 5.0 for n in range(4)}
    left = seconds_left(run_of(100, 4, 50, 0), earlier)
    assert left == pytest.approx(50 * 0.1 + 4 * 10)  # this run takes twice as long


def test_there_is_no_estimate_from_a_few_checks() -> None:
    assert seconds_left(run_of(100, 4, 3, 0)) is None
    assert in_words(None) == ""
    assert in_words(41.2) == "about 41 s left"
    assert in_words(600) == "about 10 min left"


def test_failures_show_as_they_come_and_progress_now_and_then() -> None:
    shown, now = StringIO(), [0.0]
    run = run_of(100, 0, 50, 0)
    run.children = 1
    with CertifyProgress(Console(file=shown, width=120), False, clock=lambda: now[0]) as progress:
        progress.hear(run, events.ChecksCollected(run.plan))
        for number in range(MOST_LINES + 3):
            failed = replace(run.results[f"{FAST}{number}"], outcome=Outcome.FAIL, evidence="x")
            run.results[failed.id] = failed
            progress.hear(run, events.CheckEnded(failed))
        assert "of 100 checks" not in shown.getvalue()
        now[0] += QUIET_S
        passed = run.results[f"{FAST}49"]
        progress.hear(run, events.CheckEnded(passed))
    text = shown.getvalue()
    assert text.count("FAIL    GET-01") == MOST_LINES
    assert text.count("the report has more of this one") == 1
    assert f"50 of 100 checks, {MOST_LINES + 3} broken, about 5 s left" in text


@pytest.fixture
def report(issued: Path) -> ReportDocument:
    """Return a report with a few failures."""
    return read_report(issued)


def test_only_what_failed_runs_again(report: ReportDocument) -> None:
    folder = Path("reports/acme")
    spec = report.header.target.spec
    failed = failed_checks(report, folder, spec)
    assert failed
    outcomes = {part.id: part.outcome for part in report.checks if part.ran}
    assert all(outcomes[one] is not Outcome.PASS for one in failed)
    with pytest.raises(ConfigError, match="expected a report of other:TARGET; got one of"):
        failed_checks(report, folder, "other:TARGET")


def test_a_change_of_an_argument_runs_its_check_again(report: ReportDocument) -> None:
    first = report.checks[0]
    change = CheckPart.model_validate(
        first.model_dump()
        | {"id": f"{first.id}::LIFE-09", "requirement": "LIFE-09", "ran": True, "outcome": "FAIL"}
    )
    only = report.model_copy(update={"checks": [change]})
    assert failed_checks(only, Path("reports/acme"), None) == [first.id]
    passed = change.model_copy(update={"outcome": Outcome.PASS})
    with pytest.raises(ConfigError, match="no check failed there"):
        failed_checks(only.model_copy(update={"checks": [passed]}), Path("reports/acme"), None)


def test_no_report_gives_no_times(tmp_path: Path) -> None:
    assert seconds_of_checks(tmp_path) == {}


def test_a_run_of_some_checks_says_so_and_is_never_whole() -> None:
    assert CertifyOptions("acme").selection == ""
    some = CertifyOptions("acme", select="put", only=["a"], why_only="failed in reports/acme")
    assert some.selection == "put and failed in reports/acme"
