"""``report.html``: a report as one page, made of the document, its histories and its scripts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from rlconform._page import render_template
from rlconform.certify.concurrency.named_checkers import REPEATED
from rlconform.certify.report.document import CheckPart, ReportDocument, RequirementPart
from rlconform.certify.report.page.timeline import HistoryChart, history_chart
from rlconform.certify.report.root_causes import RootCause, describe
from rlconform.certify.report.verdict import Verdict
from rlconform.certify.report.waivers import Waiver
from rlconform.certify.results import BROKEN, Outcome
from rlconform.contract import CAPABILITIES

#: Style class of each outcome.
STYLES: Mapping[Outcome, str] = {
    Outcome.PASS: "pass",
    Outcome.WARN: "unsure",
    Outcome.DEVIATION: "unsure",
    Outcome.NOT_TESTED: "unsure",
    Outcome.NOT_APPLICABLE: "none",
    Outcome.FAIL: "fail",
    Outcome.CRASH: "fail",
    Outcome.TIMEOUT: "fail",
    Outcome.SUITE_ERROR: "fail",
}
#: Style class of each verdict's banner.
VERDICTS: Mapping[Verdict, str] = {
    Verdict.CERTIFIED: "pass",
    Verdict.CONDITIONAL: "unsure",
    Verdict.NOT_CERTIFIED: "fail",
}
#: Reasons that are shown before the reader opens the others.
SHOWN = 12
#: Checks with evidence that each requirement shows before the reader opens the others.
SHOWN_CHECKS = 3


@dataclass(frozen=True)
class CheckView:
    """A check on the page."""

    part: CheckPart
    chart: HistoryChart | None


@dataclass(frozen=True)
class RequirementView:
    """A requirement on the page: checks with something to say, and those that just passed."""

    part: RequirementPart
    style: str
    seconds: float
    telling: list[CheckView]
    passed: list[CheckPart]
    script_name: str  # of its reproducer, or ""
    script: str  # its source
    waiver: Waiver | None


def render_certificate(
    document: ReportDocument, histories: Mapping[str, str], scripts: Mapping[str, str]
) -> str:
    """Return the page; ``histories`` and ``scripts`` are texts by path relative to the report."""
    unselected = [part.id for part in document.requirements if part.unselected]
    parts = [part for part in document.requirements if not part.unselected]
    rows = [_requirement(document, part, histories, scripts) for part in parts]
    left_out = tuple(f"{one} " for one in unselected)
    counts = Counter(row.part.outcome for row in rows)
    target = document.header.target
    return render_template(
        "rlconform.certify.report.page",
        "report.html.j2",
        {"without_hint": without_hint},
        script="filters.js",
        report=document,
        target=target,
        banner=VERDICTS[document.verdict.verdict],
        tally=[
            (outcome, STYLES[outcome], counts[outcome]) for outcome in Outcome if counts[outcome]
        ],
        reasons=[one for one in document.verdict.reasons if not one.startswith(left_out)],
        unselected=unselected,
        sections=list(dict.fromkeys(row.part.section for row in rows)),
        rows=rows,
        causes=[(cause, _sentence(cause)) for cause in document.causes],
        declared=[name for name, has in target.capabilities.items() if has is True],
        absent=[(name, why) for name, why in target.capabilities.items() if why is not True],
        undeclared=[name for name in CAPABILITIES if name not in target.capabilities],
        config=json.dumps(target.config, indent=2, ensure_ascii=False) if target.config else "",
        styles=STYLES,
        shown=SHOWN,
        shown_checks=SHOWN_CHECKS,
    )


def _requirement(
    document: ReportDocument,
    part: RequirementPart,
    histories: Mapping[str, str],
    scripts: Mapping[str, str],
) -> RequirementView:
    checks = [check for check in document.checks if check.requirement == part.id]
    ran = [check for check in checks if check.ran]
    telling = [check for check in ran if check.outcome is not Outcome.PASS or check.warnings]
    telling.sort(key=lambda check: check.outcome not in BROKEN)
    return RequirementView(
        part,
        STYLES[part.outcome],
        sum(check.seconds for check in ran),
        [CheckView(check, _chart(check, histories)) for check in telling],
        [check for check in ran if check not in telling],
        *next(
            ((name, scripts[name]) for name in _script_names(part.id) if name in scripts), ("", "")
        ),
        next((waiver for waiver in document.waivers if waiver.id == part.id), None),
    )


def _script_names(requirement: str) -> tuple[str, str]:
    """Return the names of its reproducers; the page shows the first that exists."""
    return f"reproducers/{requirement}_plain.py", f"reproducers/{requirement}.py"


def _chart(check: CheckPart, histories: Mapping[str, str]) -> HistoryChart | None:
    text = histories.get(check.history, "")
    return history_chart(text, check.evidence) if text else None


def _sentence(cause: RootCause) -> str:
    """Return what the cause is, without the ids before it, which the page shows as links."""
    return without_hint(describe(cause).partition(": ")[2])


def without_hint(text: str) -> str:
    """Return a race's failure without how to see it again, which is said once, at its check."""
    return text.partition(f" ({REPEATED}")[0]
