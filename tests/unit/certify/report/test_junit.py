"""``junit.xml`` has failures only for results that count against a plane in the certificate."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import Any
from xml.etree import ElementTree

import pytest

from rlconform._exit_codes import ExitCode
from rlconform.certify.report.junit import junit_suite
from rlconform.certify.report.verdict import requirement_results, verdict_of
from rlconform.certify.report.waivers import Waiver, apply_waivers
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck, RunRecord
from rlconform.contract import load_requirements

KNOWN = load_requirements()
WAIVER = Waiver("CLAIM-04", "known", "tracker/1", "nothing", date(2999, 1, 1))


def run_of(
    *results: CheckResult, left_out: tuple[PlannedCheck, ...] = (), **capabilities: bool | str
) -> RunRecord:
    """A run of these results; each result's check was planned."""
    plan = [PlannedCheck(r.id, r.requirement, r.capability) for r in results]
    target: Mapping[str, Any] = {"name": "acme", "level": "unit", "capabilities": capabilities}
    return RunRecord(dict(target), [*plan, *left_out], {r.id: r for r in results}, seconds=2.0)


def suite_of(run: RunRecord, *waivers: Waiver) -> ElementTree.Element:
    results = requirement_results(KNOWN, run.plan, run.results, "unit", run.target["capabilities"])
    results, problems = apply_waivers(results, waivers, date(2026, 1, 1))
    assert problems == []
    return junit_suite(run, results)


def parts(suite: ElementTree.Element) -> list[list[str]]:
    """The tags below each test case."""
    return [[child.tag for child in case] for case in suite.findall("testcase")]


def counts(suite: ElementTree.Element) -> dict[str, str | None]:
    return {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}


def said(suite: ElementTree.Element) -> str:
    """The message of the only test case's skip."""
    (skipped,) = suite.findall("testcase/skipped")
    return skipped.get("message", "")


def test_each_check_has_a_case_and_the_counts_are_those_of_the_cases() -> None:
    left_out = PlannedCheck("f::fp8", "PUT-02", "dtype_fp8", left_out="declares no fp8")
    run = run_of(
        CheckResult("f::pass", "GET-01", Outcome.PASS, seconds=0.5),
        CheckResult(
            "f::fail", "GET-02", Outcome.FAIL, evidence="row b", steps=["client.get()"], stacks="s"
        ),
        CheckResult("f::crash", "PUT-05", Outcome.CRASH, evidence="killed"),
        CheckResult("f::hang", "CLAIM-02", Outcome.TIMEOUT, evidence="hung"),
        CheckResult("f::ours", "PUT-04", Outcome.SUITE_ERROR, evidence="NameError: x"),
        CheckResult("f::gpu", "PUT-26", Outcome.NOT_TESTED, "cuda", evidence="no GPU"),
        left_out=(left_out,),
        cuda=True,
    )
    suite = suite_of(run)
    assert counts(suite) == {"tests": "7", "failures": "3", "errors": "1", "skipped": "2"}
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [check.id for check in run.plan]
    assert [case.get("classname") for case in cases] == [c.requirement for c in run.plan]
    failed = [["failure"]] * 3
    assert parts(suite) == [[], *failed, ["error"], ["skipped"], ["skipped"]]
    assert (cases[0].get("time"), suite.get("time")) == ("0.500", "2.000")
    failure = cases[1].find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("FAIL", "row b")
    row = KNOWN[cases[1].get("classname") or ""]
    assert failure.text == f"{row.id}: {row.title}\n{row.sentence}\n\nclient.get()\ns"
    assert [s.get("message") for s in suite.iter("skipped")] == ["no GPU", "declares no fp8"]


@pytest.mark.parametrize(
    ("outcome", "found"), [(Outcome.PASS, "it works"), (Outcome.CRASH, "CRASH: killed")]
)
def test_a_probe_of_an_undeclared_capability_is_skipped(outcome: Outcome, found: str) -> None:
    evidence = "" if outcome is Outcome.PASS else "killed"
    suite = suite_of(run_of(CheckResult("f::a", "PUT-02", outcome, "dtype_fp8", evidence)))
    assert parts(suite) == [["skipped"]]
    assert "does not declare dtype_fp8" in said(suite)
    assert said(suite).endswith(found)


def test_a_declared_capability_that_is_broken_is_a_failure() -> None:
    broken = CheckResult("f::a", "PUT-02", Outcome.FAIL, "dtype_fp8", "bytes differ")
    assert parts(suite_of(run_of(broken, dtype_fp8=True))) == [["failure"]]


def test_a_waived_failure_is_skipped_with_the_reason() -> None:
    run = run_of(
        CheckResult("f::a", "CLAIM-04", Outcome.FAIL, evidence="nothing given"),
        CheckResult("f::b", "CLAIM-04", Outcome.PASS),
        CheckResult("f::c", "CLAIM-05", Outcome.FAIL, evidence="nothing given"),
    )
    suite = suite_of(run, WAIVER)
    assert parts(suite) == [["skipped"], [], ["failure"]]
    assert said(suite).startswith("waived until 2999-01-01 (known; tracker/1)")


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.TIMEOUT])
def test_a_broken_should_is_a_property(outcome: Outcome) -> None:
    assert KNOWN["GET-12"].level == "SHOULD"
    suite = suite_of(run_of(CheckResult("f::a", "GET-12", outcome, evidence="too slow")))
    assert parts(suite) == [["properties"]]
    (warning,) = suite.findall("testcase/properties/property")
    assert (warning.get("name"), warning.get("value")) == ("WARN", f"{outcome}: too slow")
    assert counts(suite)["failures"] == "0"


def test_a_warning_of_a_passed_check_is_a_property() -> None:
    warned = CheckResult("f::a", "GET-04", Outcome.PASS, warnings=["a plain KeyError"])
    (warning,) = suite_of(run_of(warned)).findall("testcase/properties/property")
    assert warning.get("value") == "a plain KeyError"


def test_accepted_outcomes_are_not_failures() -> None:
    """One run with every outcome of a certified plane."""
    results = [
        CheckResult("f::should", "GET-12", Outcome.FAIL, evidence="slow"),
        CheckResult("f::probe", "PUT-02", Outcome.FAIL, "dtype_fp8", "bytes differ"),
        CheckResult("f::pass", "GET-01", Outcome.PASS, warnings=["odd"]),
    ]
    run = run_of(*results)
    row_results = requirement_results(KNOWN, run.plan, run.results, "unit", {})
    tested = [row for row in row_results if row.checks or row.id == "PUT-02"]
    assert verdict_of(KNOWN, tested, complete=True).exit_code == ExitCode.SUCCESS
    assert counts(suite_of(run))["failures"] == "0"
