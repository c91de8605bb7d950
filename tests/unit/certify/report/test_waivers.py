"""Waivers: invalid files are refused, and a valid waiver changes a result."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from rlconform.certify.report.waivers import Waiver, apply_waivers, load_waivers
from rlconform.certify.results import BROKEN, Outcome, RequirementResult
from rlconform.contract import ConfigError

TODAY = date(2026, 11, 21)
WAIVER = Waiver(
    id="CLEAR-07",
    reason="fixed in the next release",
    issue="https://example.org/137",
    match=r"bytes of (another|the next) row",
    expires=date(2027, 3, 1),
)
FAILED = RequirementResult("CLEAR-07", Outcome.FAIL, "got bytes of another row", ["a::b"])

TEXT = """
[[waiver]]
id = "CLEAR-07"
reason = "fixed in the next release"
issue = "https://example.org/137"
match = 'bytes of (another|the next) row'
expires = 2027-03-01
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "waivers.toml"
    path.write_text(text, "utf-8")
    return path


# -- reading -------------------------------------------------------------------------------------


def test_a_file_is_read(tmp_path: Path) -> None:
    assert load_waivers(write(tmp_path, TEXT)) == [WAIVER]
    two = TEXT + TEXT.replace("CLEAR-07", "GET-02")
    assert load_waivers(write(tmp_path, two)) == [WAIVER, replace(WAIVER, id="GET-02")]


def test_an_empty_file_waives_nothing(tmp_path: Path) -> None:
    assert load_waivers(write(tmp_path, "")) == []


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        load_waivers(path)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("[[waiver]]", "[[waiver", "not TOML"),
        ("[[waiver]]", "[waiver]", "waiver"),
        ("[[waiver]]", "[[waivers]]", "waivers"),
        ('reason = "fixed in the next release"\n', "", "reason"),
        ('id = "CLEAR-07"\n', "", "id"),
        ("issue =", "isue =", "missing: issue; unknown: isue"),
        ('"https://example.org/137"', '""', "issue must not be empty"),
        ('"fixed in the next release"', '"  "', "reason must not be empty"),
        ("'bytes of (another|the next) row'", "''", "match must not be empty"),
        (
            "'bytes of (another|the next) row'",
            "'bytes of (another'",
            "match is not a regular expression",
        ),
        ("'bytes of (another|the next) row'", "137", "match"),
        ("2027-03-01", '"2027-03-01"', "expires must be a date"),
        ("2027-03-01", "2027-03-01T12:00:00", "expires must be a date"),
        ("2027-03-01", "2027", "expires must be a date"),
        ("CLEAR-07", "CLEAR-77", "no requirement 'CLEAR-77'; did you mean 'CLEAR-07'"),
    ],
)
def test_a_wrong_waiver_is_refused_by_name(tmp_path: Path, old: str, new: str, named: str) -> None:
    path = write(tmp_path, TEXT.replace(old, new))
    with pytest.raises(ConfigError, match=named) as refused:
        load_waivers(path)
    assert str(path) in str(refused.value)


def test_a_waiver_that_is_not_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="waiver 1 is not a table"):
        load_waivers(write(tmp_path, "waiver = [1, 2]\n"))


def test_invalid_utf8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "waivers.toml"
    path.write_bytes(b'[[waiver]]\nid = "\xff"\n')
    with pytest.raises(ConfigError, match=r"waivers\.toml"):
        load_waivers(path)


# -- applying ------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", sorted(BROKEN))
def test_a_matched_failure_becomes_a_deviation(outcome: Outcome) -> None:
    (result,), problems = apply_waivers([replace(FAILED, outcome=outcome)], [WAIVER], TODAY)
    assert problems == []
    assert (result.outcome, result.checks) == (Outcome.DEVIATION, FAILED.checks)
    for part in (WAIVER.reason, WAIVER.issue, "2027-03-01", FAILED.reason):
        assert part in result.reason


def test_the_pattern_may_match_anywhere_in_the_failure() -> None:
    long = replace(FAILED, reason="row 3\ngot bytes of the next row, again")
    assert apply_waivers([long], [WAIVER], TODAY)[1] == []


@pytest.mark.parametrize("outcome", sorted(set(Outcome) - BROKEN))
def test_a_waiver_of_a_passing_requirement_is_stale(outcome: Outcome) -> None:
    result = replace(FAILED, outcome=outcome)
    results, (problem,) = apply_waivers([result], [WAIVER], TODAY)
    assert results == [result]
    assert "CLEAR-07 is stale" in problem
    assert outcome in problem


def test_a_waiver_of_an_uncounted_requirement_is_stale() -> None:
    other = replace(FAILED, id="GET-01")
    results, (problem,) = apply_waivers([other], [WAIVER], TODAY)
    assert results == [other]
    assert "CLEAR-07 is stale: the requirement is not in this profile" in problem


@pytest.mark.parametrize(("days", "holds"), [(-1, True), (0, True), (1, False)])
def test_a_waiver_holds_through_its_last_day(days: int, holds: bool) -> None:
    today = WAIVER.expires + timedelta(days)
    (result,), problems = apply_waivers([FAILED], [WAIVER], today)
    assert result.outcome is (Outcome.DEVIATION if holds else Outcome.FAIL)
    assert problems == ([] if holds else ["waiver CLEAR-07 expired on 2027-03-01"])


def test_another_failure_is_not_waived() -> None:
    other = replace(FAILED, reason="a null id")
    results, (problem,) = apply_waivers([other], [WAIVER], TODAY)
    assert results == [other]
    assert "does not match" in problem
    assert "a null id" in problem


def test_other_results_stay_as_they_are_and_in_order() -> None:
    before = RequirementResult("GET-01", Outcome.FAIL, "bytes of another row")
    after = RequirementResult("LIFE-01", Outcome.PASS)
    results, _ = apply_waivers([before, FAILED, after], [WAIVER], TODAY)
    assert [result.id for result in results] == ["GET-01", "CLEAR-07", "LIFE-01"]
    assert (results[0], results[2]) == (before, after)


def test_two_waivers_of_one_id_are_a_problem() -> None:
    (result,), problems = apply_waivers([FAILED], [WAIVER, WAIVER], TODAY)
    assert result.outcome is Outcome.DEVIATION
    assert result.reason.count("waived until") == 1
    assert len(problems) == 1
