"""The pages of reports: what comes first, what they show, and that no text of a plane is markup."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rlconform.certify.concurrency.operation import Operation, to_jsonl
from rlconform.certify.judged_runs import JudgedAnomaly, JudgedRule, JudgedRun
from rlconform.certify.report.compare_reports import ChangeKind, diff_reports
from rlconform.certify.report.document import ReportDocument, read_report
from rlconform.certify.report.page.certificate_page import render_certificate
from rlconform.certify.report.page.comparison_pages import (
    diff_sentence,
    matrix_markdown,
    render_diff,
    render_matrix,
)
from rlconform.certify.report.page.timeline import history_chart
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.results import CheckResult, Outcome, RunRecord
from rlconform.check_run.verdict import RuleOutcome
from rlconform.cli import app

Issue = Callable[..., Path]

PLANTED = "<script>planted()</script>\"'><img src=x onerror=planted()>"
SCRIPT = (resources.files("rlconform") / "_templates" / "filters.js").read_text("utf-8")


class Seen(HTMLParser):
    """The elements, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        (self.scripts if self.cdata_elem == "script" else self.texts).append(data)


def page_of(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


# -- the report ----------------------------------------------------------------------------------


def test_the_page_begins_with_the_verdict_and_what_was_declared(issued: Path) -> None:
    page = page_of(issued)
    order = [
        "Not certified at level unit", "What was declared", "root causes first", "Waivers",
        "Requirement by requirement", "Notes", "Where the time went", "How it was made",
    ]  # fmt: skip
    places = [page.index(part) for part in order]
    assert places == sorted(places)


def test_a_requirement_shows_sentence_reason_evidence_timeline_and_reproducer(issued: Path) -> None:
    page = page_of(issued)
    broken = page[page.index('id="GET-04"') : page.index('id="GET-05"')]
    for part in ("A read that names an unknown id raises", "In the field", "expected an error"):
        assert part in broken
    assert "print(&#39;GET-04&#39;)" in broken
    race = page[page.index('id="CLAIM-02"') : page.index('id="CLAIM-03"')]
    assert race.count('class="proves"') == 3  # the put, and the two claims that returned the row
    assert "first; claim" in race


def test_a_waiver_is_shown_with_a_link_to_its_issue(issued: Path) -> None:
    page = page_of(issued)
    link = '<a href="https://tracker.example.org/137" rel="noreferrer">'
    assert page.count(link) == 2  # in the list, and at its requirement
    assert "until 2027-03-01: fixed in 1.5" in page


def test_the_page_loads_nothing(issued: Path) -> None:
    seen = Seen(page_of(issued))
    assert not {"img", "link", "iframe", "object", "embed", "base"}.intersection(seen.tags)
    assert [name for name, _ in seen.attributes if name in {"src", "srcset", "action"}] == []
    assert "@import" not in page_of(issued)
    assert "url(" not in page_of(issued)


def without_put(run: RunRecord) -> None:
    """Deselect the checks of a section."""
    run.plan = [
        replace(check, left_out=check.left_out or "not selected")
        if check.requirement.startswith("PUT")
        else check
        for check in run.plan
    ]
    run.results = {
        name: result
        for name, result in run.results.items()
        if not result.requirement.startswith("PUT")
    }


def test_a_page_of_a_part_names_what_was_not_selected(issue_report: Issue) -> None:
    page = page_of(issue_report(without_put))
    assert 'id="PUT-01"' not in page
    assert "more requirements, whose checks were not selected" in page


# -- planted markup ------------------------------------------------------------------------------


def planted(value: Any, key: str = "") -> Any:
    """Return part of a report with markup in every text that a plane or its vendor may choose."""
    if isinstance(value, dict):
        return {name: planted(part, name) for name, part in value.items()}
    if isinstance(value, list):
        return [planted(one, key) for one in value]
    return f"{value}{PLANTED}" if isinstance(value, str) and key not in OURS else value


#: Texts of a report that rlconform alone chooses, and in which the schema allows no others.
OURS = {"created", "level", "requirement", "outcome", "verdict", "expires", "id", "checks",
        "may_follow_from", "requirements", "followers", "history", "left_out"}  # fmt: skip


def attacked(run: RunRecord) -> None:
    """Put markup into every field of a run that a plane can set: names, ids, errors, fields."""
    run.target = planted(run.target | {"vendor": "v", "config": {PLANTED: "c"}})
    run.target["capabilities"] = dict.fromkeys(run.target["capabilities"], PLANTED)
    history = to_jsonl(
        Operation(
            who=PLANTED, op=op, start=at, end=at + 0.05, ids=(PLANTED,), fields=(PLANTED,),
            task=PLANTED, asked=1, version=1, error=error and PLANTED,
        )
        for op, at, error in (("put", 1, ""), ("claim", 2, ""), ("claim", 3, ""), ("get", 2, "no"))
    )  # fmt: skip
    run.plan = [replace(check, left_out=check.left_out and PLANTED) for check in run.plan]
    for check in [*run.plan[:1], *(c for c in run.plan if c.id in run.results)]:
        result = run.results.get(check.id)
        if result is None or result.outcome is Outcome.PASS:
            continue
        run.results[check.id] = replace(
            result, evidence=f"{result.evidence} {PLANTED}", steps=[PLANTED], stacks=PLANTED,
            warnings=[PLANTED], reproducer=PLANTED, history=result.history and history,
        )  # fmt: skip
    odd = f"unit/contract/test_get.py::test_odd[{PLANTED}]"
    run.plan.append(replace(run.plan[0], id=odd, requirement="GET-01", level="unit", left_out=""))
    run.results[odd] = CheckResult(odd, "GET-01", Outcome.FAIL, evidence=PLANTED, stacks=PLANTED)
    anomaly = JudgedAnomaly(PLANTED, PLANTED, False, [PLANTED])
    rule = JudgedRule("staleness", PLANTED, RuleOutcome.FAIL, [PLANTED], PLANTED, 1, [anomaly])
    judged = JudgedRun(PLANTED, PLANTED, 9, PLANTED, [rule])
    run.results[odd] = replace(run.results[odd], runs=[judged])
    run.notes.append(PLANTED)


@pytest.fixture
def hostile(issue_report: Issue) -> Path:
    return issue_report(attacked, "hostile")


def assert_harmless(page: str) -> None:
    seen = Seen(page)
    assert "".join(seen.scripts) in {SCRIPT, ""}
    assert "img" not in seen.tags
    assert [name for name, _ in seen.attributes if name.startswith("on")] == []
    links = [value for name, value in seen.attributes if name == "href"]
    assert [one for one in links if not one.startswith(("#", "https://", "http://"))] == []
    assert PLANTED in "".join(seen.texts)


def test_no_text_of_a_plane_is_markup(hostile: Path, issued: Path) -> None:
    page = page_of(hostile)
    assert_harmless(page)
    assert page.count("&lt;script&gt;planted()") > 40
    assert "Training runs, judged by their events" in page
    reports = [read_report(hostile), read_report(issued)]
    assert_harmless(render_matrix(reports))
    assert_harmless(render_diff(diff_reports(*reports[::-1])))


def test_every_text_of_a_report_is_escaped(issued: Path) -> None:
    """Texts that come from rlconform today are escaped as well: a report may have been edited."""
    report = planted(json.loads((issued / "report.json").read_text("utf-8")))
    document = ReportDocument.model_validate(report)
    assert_harmless(render_certificate(document, {}, {"reproducers/GET-04.py": PLANTED}))


def test_an_issue_that_is_no_web_address_is_no_link(issued: Path) -> None:
    document = read_report(issued)
    waiver = Waiver("PUT-25", "r", "javascript:alert(1)", "m", date(2027, 3, 1))
    page = render_certificate(document.model_copy(update={"waivers": [waiver]}), {}, {})
    assert "javascript:alert(1)" in page
    assert 'href="javascript' not in page


def test_a_planes_name_is_no_markup_in_markdown(hostile: Path) -> None:
    markdown = matrix_markdown([read_report(hostile)])
    assert "<script>" not in markdown.replace("\\<script\\>", "")
    assert {line.count("|") - line.count("\\|") for line in markdown.splitlines()} == {3}


# -- the timeline --------------------------------------------------------------------------------


def test_a_timeline_without_a_named_checker_shows_the_calls(issued: Path) -> None:
    (path,) = (issued / "histories").iterdir()
    chart = history_chart(path.read_text(), "expected a; got b")
    assert chart is not None
    assert len(chart.bars) == chart.calls == 4
    assert not any(bar.proves for bar in chart.bars)


def test_a_call_that_never_ended_reaches_the_edge() -> None:
    calls = [
        Operation(who="a", op="put", start=1.0, end=1.2, ids=("r",)),
        Operation(who="b", op="claim", start=1.1),
    ]
    chart = history_chart(to_jsonl(calls), "")
    assert chart is not None
    put, claim = chart.bars
    assert claim.x + claim.width == pytest.approx(put.x + put.width)
    assert "never ended" in claim.title


def test_calls_fit_the_drawing(issued: Path) -> None:
    document = read_report(issued)
    evidence = next(check.evidence for check in document.checks if check.history)
    (path,) = (issued / "histories").iterdir()
    chart = history_chart(path.read_text(), evidence)
    assert chart is not None
    assert all(bar.x > 0 and bar.x + bar.width <= 1000 for bar in chart.bars)
    assert sum(bar.proves for bar in chart.bars) == 3


# -- matrix and diff -----------------------------------------------------------------------------


def repair(requirement: str) -> Callable[[RunRecord], None]:
    def change(run: RunRecord) -> None:
        for one in [r for r in run.results.values() if r.requirement == requirement]:
            run.results[one.id] = CheckResult(one.id, requirement, Outcome.PASS)

    return change


def test_the_matrix_has_a_row_for_each_requirement_and_a_column_for_each_plane(
    issued: Path, issue_report: Issue
) -> None:
    reports = [read_report(issued), read_report(issue_report(repair("GET-04"), "second"))]
    page = render_matrix(reports)
    assert page.count("data-row ") == len(reports[0].requirements)
    row = page[page.index("<b>GET-04</b>") :].partition("</tr>")[0]
    assert [row.count(f'class="{style}"') for style in ("fail", "pass")] == [1, 1]
    (line,) = [one for one in matrix_markdown(reports).splitlines() if "GET-04" in one]
    assert line.endswith("| FAIL | ✓ |")


def test_a_diff_shows_what_is_repaired_and_newly_broken(issued: Path, issue_report: Issue) -> None:
    old = read_report(issued)
    new = read_report(issue_report(repair("GET-04"), "second"))
    better, worse = diff_reports(old, new), diff_reports(new, old)
    assert [(one.id, one.kind) for one in better.changes] == [("GET-04", ChangeKind.REPAIRED)]
    assert not better.is_worse
    assert better.still_broken == ["CLAIM-02"]
    assert diff_sentence(better) == "1 repaired, 1 broken in both"
    assert [(one.id, one.kind) for one in worse.changes] == [("GET-04", ChangeKind.BROKEN)]
    assert worse.is_worse
    assert "1 newly broken" in render_diff(worse).lower()
    assert len(worse.checks) == 1


def test_equal_reports_have_no_difference(issued: Path) -> None:
    report = read_report(issued)
    same = diff_reports(report, report)
    assert (same.header, same.changes, same.checks, same.is_worse) == ([], [], [], False)


def test_what_one_run_did_not_select_is_not_compared(issued: Path, issue_report: Issue) -> None:
    diff = diff_reports(read_report(issued), read_report(issue_report(without_put, "part")))
    assert "PUT-01" in diff.not_compared
    assert [change.id for change in diff.changes if change.id.startswith("PUT")] == []
    assert not diff.is_worse
    assert "did not select the checks of" in render_diff(diff)


def test_a_requirement_that_is_no_longer_tested_is_worse(issued: Path, issue_report: Issue) -> None:
    def drop(run: RunRecord) -> None:
        for one in [r for r in run.results.values() if r.requirement == "PUT-01"]:
            del run.results[one.id]
        run.complete = False

    diff = diff_reports(read_report(issued), read_report(issue_report(drop, "second")))
    assert [(one.id, one.kind) for one in diff.changes] == [("PUT-01", ChangeKind.LOST)]
    assert diff.is_worse


# -- the commands --------------------------------------------------------------------------------


def run(*typed: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in typed])
    return result.exit_code, result.output


def test_matrix_writes_a_page_and_markdown(issued: Path, tmp_path: Path) -> None:
    page, markdown = tmp_path / "matrix.html", tmp_path / "matrix.md"
    code, output = run("matrix", issued, issued, "--out", page, "--markdown", markdown)
    assert code == 0
    assert output.count("acme/shm 1.4: not certified at level unit") == 2
    assert page.read_text().startswith("<!doctype html>")
    assert markdown.read_text().startswith("| Requirement | acme/shm 1.4 | acme/shm 1.4 |")


def test_diff_exits_with_1_if_something_is_newly_broken(
    issued: Path, issue_report: Issue, tmp_path: Path
) -> None:
    second = issue_report(repair("GET-04"), "second")
    assert run("diff", issued, issued) == (
        0,
        "broken in both: GET-04, CLAIM-02\n2 broken in both\n",
    )
    assert run("diff", issued, second)[0] == 0
    code, output = run("diff", second, issued, "--html", tmp_path / "diff.html")
    assert code == 1
    assert "1 newly broken" in output
    assert "expected an error; got 2 rows" in output
    assert (tmp_path / "diff.html").read_text().startswith("<!doctype html>")


def test_a_page_that_can_not_be_written_is_one_sentence(issued: Path, tmp_path: Path) -> None:
    code, output = run("diff", issued, issued, "--html", tmp_path / "none" / "diff.html")
    assert code == 2
    assert "can't be written" in output
    assert len(output.strip().splitlines()) == 1
