"""What the commands that read reports make of one, without writing files."""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from io import StringIO
from pathlib import Path

from rich.console import Console

from rlconform.certify.report.compare_reports import diff_reports
from rlconform.certify.report.document import ReportDocument
from rlconform.certify.report.draft_waivers import draft_waivers, waiver_file
from rlconform.certify.report.earlier_run import failed_checks
from rlconform.certify.report.page.certificate_page import render_certificate
from rlconform.certify.report.page.comparison_pages import (
    matrix_markdown,
    render_diff,
    render_matrix,
)
from rlconform.cli.diff import _print
from rlconform.contract import ConfigError


def shown_of_report(report: ReportDocument, other: ReportDocument) -> str:
    """Return the pages and the Markdown of a report, and of it beside another one."""
    compared = diff_reports(other, report)
    _print(Console(file=StringIO()), compared)
    draft = draft_waivers(report, [], date(2027, 1, 1), "", "")
    waiver_file(report, draft.waivers)
    with suppress(ConfigError):  # nothing failed
        failed_checks(report, Path("report"), None)
    pages = [
        render_certificate(report, {}, {}),
        render_matrix([report, other]),
        render_diff(compared),
    ]
    return "\n".join([*pages, matrix_markdown([report, other])])
