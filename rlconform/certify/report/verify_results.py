"""Compares a report's results with its evidence, and its verdict with its results. Pure functions.

Each yields pairs of a part of the report and what is wrong with it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from rlconform._files import excerpt
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.named_checkers import CHECKERS, checker_named_in
from rlconform.certify.concurrency.operation import from_jsonl
from rlconform.certify.report.badge import badge_text
from rlconform.certify.report.document import CheckPart, ReportDocument
from rlconform.certify.report.json_report import body_of, suite_digest
from rlconform.certify.report.junit import junit_bytes
from rlconform.certify.report.recompute import judged_again
from rlconform.certify.requirement_index import checks_of_suites
from rlconform.certify.results import BROKEN, Outcome
from rlconform.check_run.verdict import RuleOutcome
from rlconform.contract import load_requirements

#: The part of a report that is wrong, and how.
Wrong = tuple[str, str]


def check_findings(document: ReportDocument, texts: Mapping[str, str]) -> Iterator[Wrong]:
    """Find checks whose outcome their evidence, history or training runs contradict."""
    if document.header.suite_sha256 == suite_digest():
        yield from _plan(document)
    known = load_requirements()
    for check in document.checks:
        if check.requirement not in known:
            yield check.id, f"there is no requirement {check.requirement}"
        yield from _outcome(check)
        if check.history in texts and check.ran:
            yield from _history(check, texts[check.history])
    by_id = {check.id: check for check in document.checks}
    for run in document.runs:
        judged = by_id.get(run.check)
        failed = [rule.rule for rule in run.rules if rule.outcome is RuleOutcome.FAIL]
        if failed and (judged is None or judged.outcome not in BROKEN):
            found = "no such check" if judged is None else str(judged.outcome)
            yield run.check, f"its run breaks {', '.join(failed)}: expected FAIL; got {found}"


def _plan(document: ReportDocument) -> Iterator[Wrong]:
    """Compare the planned checks with those that the suite has."""
    suite = _suite()
    planned = {_function_of(check.id) for check in document.checks}
    for missing in sorted(suite.keys() - planned):
        yield missing, "the suite has this check; the report has no result of it"
    for check in document.checks:
        if _is_change(check.id):
            continue
        marks = suite.get(_function_of(check.id))
        if marks is None:
            yield check.id, "the suite has no such check"
        elif marks and check.requirement not in marks:
            named = ", ".join(sorted(marks))
            yield check.id, f"expected a check of {named}; got one of {check.requirement}"
        elif check.level != check.id.partition("/")[0]:
            yield check.id, f"expected level {check.id.partition('/')[0]}; got {check.level}"
        elif check.capability not in _capabilities(check):
            yield check.id, f"{check.requirement} does not depend on {check.capability!r}"


def _is_change(check_id: str) -> bool:
    """Whether it is a change of arguments or results, which any check may find."""
    return check_id.rpartition("::")[2] in load_requirements()


def _function_of(check_id: str) -> str:
    return check_id.partition("[")[0]


def _capabilities(check: CheckPart) -> tuple[str, ...]:
    row = load_requirements().get(check.requirement)
    return (row.capability or ("",)) if row else (check.capability,)


@cache
def _suite() -> dict[str, frozenset[str]]:
    found = checks_of_suites()
    return {name: marks for name, marks in found.items() if not name.startswith("tests/")}


def _outcome(check: CheckPart) -> Iterator[Wrong]:
    if check.ran and check.left_out:
        yield check.id, f"expected no result, as it was left out ({check.left_out}); got one"
    elif not check.ran and check.outcome is not Outcome.NOT_TESTED:
        yield check.id, f"expected NOT_TESTED, as it did not run; got {check.outcome}"
    elif check.outcome is Outcome.PASS and (check.evidence or check.stacks):
        yield check.id, f"expected no evidence with PASS; got {check.evidence or check.stacks!r}"
    elif check.outcome in BROKEN and not check.evidence:
        yield check.id, f"expected evidence with {check.outcome}; got none"


def _history(check: CheckPart, text: str) -> Iterator[Wrong]:
    """Check the history again, with the checker that the failure names."""
    named = checker_named_in(check.evidence)
    checkers = [named] if named and check.outcome in BROKEN else list(CHECKERS.values())
    try:
        history = History(from_jsonl(text))
        kinds = sorted({anomaly.kind for checker in checkers for anomaly in checker(history)})
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
        yield check.history, f"not a history: {type(error).__name__}: {excerpt(str(error))}"
        return
    said = ", ".join(kinds) or "nothing"
    if check.outcome not in BROKEN:
        yield (
            check.id,
            f"expected FAIL, as only failures have a history, in which checkers find {said}",
        )
    elif named and not any(kind in check.evidence for kind in kinds):
        name = getattr(named, "__name__", "")
        yield check.id, f"expected {name} to find in the history what its evidence says; got {said}"


def result_findings(
    said: Mapping[str, Any], document: ReportDocument, texts: Mapping[str, str]
) -> Iterator[Wrong]:
    """Judge the run again, and find what the report, ``said`` as plain data, says otherwise."""
    if any(check.requirement not in load_requirements() for check in document.checks):
        return  # ``check_findings`` has named them
    for waiver in document.waivers:
        try:
            re.compile(waiver.match)
        except (re.error, RecursionError, OverflowError) as error:
            yield f"waiver {waiver.id}", f"match is not a regular expression: {error}"
            return
    certificate = judged_again(document, texts)
    again = json.loads(json.dumps(body_of(certificate), default=str))
    yield from _rows(said["requirements"], again["requirements"])
    for part in ("causes", "verdict"):
        if said[part] != again[part]:
            yield part, _difference(said[part], again[part])
    counted = (certificate.run.complete, len(certificate.run.due), len(certificate.run.results))
    footer = document.footer
    if counted != (footer.complete, footer.checks_planned, footer.checks_run):
        complete, due, ran = counted
        yield (
            "footer",
            f"expected {ran} of {due} checks run, complete: {complete}; got other counts",
        )
    if document.header.level != document.header.target.level:
        yield "header", "expected the level of the target; got another"
    junit = junit_bytes(certificate.run, certificate.results).decode()
    for name, text in {"badge.json": badge_text(certificate), "junit.xml": junit}.items():
        if texts.get(name, text) != text:
            yield name, "expected what follows from the results; got something else"


def _rows(said: list[dict[str, Any]], again: list[dict[str, Any]]) -> Iterator[Wrong]:
    by_id = {row["id"]: row for row in said}
    for row in again:
        found = by_id.pop(row["id"], None)
        if found is None:
            yield row["id"], "expected a result of this requirement; the report has none"
        elif found["outcome"] != row["outcome"]:
            yield row["id"], f"its checks say {row['outcome']}; the report says {found['outcome']}"
        elif found != row:
            yield row["id"], _difference(found, row)
    for extra in by_id:
        yield extra, "level and requirement set do not count this requirement"


def _difference(said: Any, again: Any) -> str:
    """Describe the first difference."""
    if isinstance(said, dict) and isinstance(again, dict):
        key = next(key for key in again if said.get(key) != again[key])
        return f"{key}: expected {_short(again[key])}; got {_short(said.get(key))}"
    return f"expected {_short(again)}; got {_short(said)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 160 else f"{text[:157]}..."
