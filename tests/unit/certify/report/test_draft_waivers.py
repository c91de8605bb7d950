"""``rlconform waivers`` drafts a file that waives what fails now, once a person adds the reason."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rlconform.certify.options import CertifyOptions
from rlconform.certify.report.document import read_report
from rlconform.certify.report.draft_waivers import draft_waivers, pattern_of, waiver_file
from rlconform.certify.report.judge import judge
from rlconform.certify.report.recompute import run_of
from rlconform.certify.report.verdict import Verdict
from rlconform.certify.report.waivers import Waiver, load_waivers
from rlconform.certify.results import CheckResult, Outcome, RunRecord
from rlconform.cli import app
from rlconform.contract import ConfigError

Issue = Callable[..., Path]
EXPIRES = date(2027, 2, 24)


def run(*typed: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in typed])
    return result.exit_code, result.output


def test_the_file_waives_what_fails(issued: Path, tmp_path: Path) -> None:
    """Judged again with the drafted waivers, the same run is conditional."""
    path = tmp_path / "waivers.toml"
    typed = ("waivers", issued, "--write", "--out", path)
    code, output = run(*typed, "--reason", "next release", "--issue", "https://example.org/1")
    assert code == 0
    assert "has 3 waivers, 2 of them new" in output
    waivers = load_waivers(path)
    assert [waiver.id for waiver in waivers] == ["PUT-25", "GET-04", "CLAIM-02"]
    options = CertifyOptions("acme.plane:TARGET")
    again = judge(options, run_of(read_report(issued), {}), waivers, False, datetime.now(UTC))
    assert (again.conclusion.verdict, again.conclusion.reasons) == (
        Verdict.CONDITIONAL,
        ["PUT-25 waived", "GET-04 waived", "CLAIM-02 waived"],
    )


def test_a_draft_waives_nothing_until_it_has_a_reason(issued: Path, tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    _, output = run("waivers", issued, "--write", "--out", path)
    assert "certify takes it once each has a reason and an issue" in output
    with pytest.raises(ConfigError, match="reason must not be empty"):
        load_waivers(path)


def test_without_write_the_draft_is_printed(issued: Path, tmp_path: Path) -> None:
    code, output = run("waivers", issued, "--out", tmp_path / "waivers.toml", "--days", 10)
    assert code == 0
    rows = tomllib.loads(output)["waiver"]
    assert rows[1]["id"] == "GET-04"
    assert rows[1]["match"] == "expected an error"
    assert rows[1]["expires"] == (datetime.now(UTC) + timedelta(days=10)).date()
    assert "# An unknown id raises" in output
    assert list(tmp_path.glob("*.toml")) == []


def test_waivers_that_still_apply_are_kept_and_others_dropped(issued: Path) -> None:
    report = read_report(issued)
    present = [
        Waiver("GET-04", "known", "https://example.org/2", "an error", EXPIRES),
        Waiver("GET-01", "was broken", "https://example.org/3", "x", EXPIRES),
    ]
    draft = draft_waivers(report, present, EXPIRES)
    assert {waiver.id: waiver.reason for waiver in draft.waivers} == {
        "PUT-25": "fixed in 1.5", "GET-04": "known", "CLAIM-02": "",
    }  # fmt: skip
    assert (draft.added, draft.dropped) == (["CLAIM-02"], ["GET-01"])


def test_a_waiver_that_no_longer_matches_gets_the_new_failure(issued: Path) -> None:
    present = [Waiver("GET-04", "known", "https://example.org/2", "another failure", EXPIRES)]
    draft = draft_waivers(read_report(issued), present, EXPIRES)
    (waiver,) = [one for one in draft.waivers if one.id == "GET-04"]
    assert (waiver.reason, waiver.match) == ("known", "expected an error")


def test_nothing_is_written_for_a_plane_without_failures(
    issue_report: Issue, tmp_path: Path
) -> None:
    def repair(run: RunRecord) -> None:
        for result in list(run.results.values()):
            run.results[result.id] = CheckResult(result.id, result.requirement, Outcome.PASS)

    path = tmp_path / "waivers.toml"
    code, output = run("waivers", issue_report(repair), "--write", "--out", path)
    assert (code, "Nothing is broken" in output, path.exists()) == (0, True, False)


@pytest.mark.parametrize(
    ("failures", "pattern"),
    [
        (["expected a; got b"], "expected a"),
        (["expected row 'u-1' of 8; got row 'u-2'"], "(?s)expected row .* of .*"),
        (["expected x (y) [z]; got b"], r"expected x \(y\) \[z\]"),
        (["expected a; got b", "expected a; got c"], "expected a"),
        (["expected a; got b", "died"], "expected a|died"),
        (["two\n  lines"], r"two\s+lines"),
    ],
)
def test_the_pattern_leaves_out_what_differs_from_run_to_run(
    failures: list[str], pattern: str
) -> None:
    assert pattern_of(failures) == pattern


def test_any_text_is_valid_toml(issued: Path) -> None:
    report = read_report(issued)
    odd = "\x00\x07\x7f\"\\ \ud800\n\u2028'''"
    requirements = [
        part.model_copy(update={"failures": [odd]}) if part.failures else part
        for part in report.requirements
    ]
    target = report.header.target.model_copy(update={"name": f"x\n[{odd}]"})
    header = report.header.model_copy(update={"target": target})
    report = report.model_copy(update={"requirements": requirements, "header": header})
    draft = draft_waivers(report, [], EXPIRES, odd, odd)
    rows = tomllib.loads(waiver_file(report, [replace(one, match=odd) for one in draft.waivers]))
    assert rows["waiver"][1]["match"] == odd.replace("\ud800", "?")
