"""The pages of a matrix (HTML and Markdown) and of a comparison of two reports."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rlconform._page import render_template
from rlconform.certify.report.compare_reports import (
    ChangeKind,
    MatrixRow,
    ReportDiff,
    matrix_rows,
)
from rlconform.certify.report.document import ReportDocument, RequirementPart
from rlconform.certify.report.page.certificate_page import STYLES, VERDICTS, without_hint
from rlconform.certify.results import Outcome

#: What a cell of a matrix shows for each outcome.
CELLS = {
    Outcome.PASS: "✓",
    Outcome.WARN: "warn",
    Outcome.NOT_TESTED: "?",
    Outcome.NOT_APPLICABLE: "n/a",
    Outcome.DEVIATION: "waived",
    Outcome.SUITE_ERROR: "error",
}
#: Style class of a requirement's change.
KINDS = {
    ChangeKind.BROKEN: "fail",
    ChangeKind.LOST: "unsure",
    ChangeKind.REPAIRED: "pass",
    ChangeKind.NEW: "none",
    ChangeKind.OTHER: "none",
}
_PACKAGE = "rlconform.certify.report.page"


def cell_text(result: RequirementPart | None) -> str:
    """Return the text of a matrix cell; "" for a requirement that the report does not count."""
    return CELLS.get(result.outcome, str(result.outcome)) if result else ""


def render_matrix(reports: Sequence[ReportDocument]) -> str:
    """Return the matrix as a page."""
    rows = matrix_rows(reports)
    sections = [(name, list(each)) for name, each in groupby(rows, lambda row: row.section)]
    return render_template(
        _PACKAGE,
        "matrix.html.j2",
        {"cell": cell_text, "without_hint": without_hint},
        script="filters.js",
        reports=reports,
        names=names_of(reports),
        sections=sections,
        kinds=[
            kind for kind in ("broken", "differs", "same") if any(r.worst == kind for r in rows)
        ],
        styles=STYLES,
        banners=VERDICTS,
    )


def render_diff(diff: ReportDiff) -> str:
    """Return the comparison as a page."""
    return render_template(
        _PACKAGE,
        "diff.html.j2",
        {"without_hint": without_hint},
        diff=diff,
        styles=STYLES,
        kinds=KINDS,
        sentence=diff_sentence(diff),
    )


def names_of(reports: Sequence[ReportDocument]) -> list[str]:
    """Return the planes' names with their versions."""
    targets = [report.header.target for report in reports]
    return [f"{target.name} {target.version}".strip() for target in targets]


def diff_sentence(diff: ReportDiff) -> str:
    """Return the comparison in one sentence."""
    counts = [
        f"{sum(change.kind is kind for change in diff.changes)} {kind}"
        for kind in (ChangeKind.BROKEN, ChangeKind.LOST, ChangeKind.REPAIRED, ChangeKind.NEW)
        if any(change.kind is kind for change in diff.changes)
    ]
    still = f"{len(diff.still_broken)} broken in both" if diff.still_broken else ""
    return ", ".join(filter(None, [*counts, still])) or "no requirement changed"


def matrix_markdown(reports: Sequence[ReportDocument]) -> str:
    """Return the matrix as Markdown: verdicts, then one row per requirement."""
    lines = [
        f"| Requirement | {' | '.join(map(markdown_cell, names_of(reports)))} |",
        f"|---|{'---|' * len(reports)}",
        f"| level | {' | '.join(report.header.level for report in reports)} |",
        f"| verdict | {' | '.join(str(report.verdict.verdict) for report in reports)} |",
        f"| date | {' | '.join(f'{report.header.created:%Y-%m-%d}' for report in reports)} |",
        *map(_markdown_row, matrix_rows(reports)),
    ]
    return "\n".join(lines) + "\n"


def _markdown_row(row: MatrixRow) -> str:
    cells = [cell_text(result) for result in row.results]
    return f"| {row.id} {markdown_cell(row.title)} | {' | '.join(cells)} |"


def markdown_cell(text: str) -> str:
    """Return a text as a cell of a Markdown table: on one line, no markup of its own."""
    line = " ".join(text.split())
    for special in "\\`*_[]<>|":
        line = line.replace(special, f"\\{special}")
    return line
