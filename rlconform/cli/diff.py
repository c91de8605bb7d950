"""The ``diff`` command: what changed from one certificate to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform._exit_codes import ExitCode
from rlconform.certify.report.compare_reports import ChangeKind, ReportDiff, diff_reports
from rlconform.certify.report.console import STYLE
from rlconform.certify.report.document import RequirementPart, read_report
from rlconform.certify.report.page.comparison_pages import diff_sentence, render_diff
from rlconform.cli.console import fail, new_console
from rlconform.cli.pages import write_page
from rlconform.contract import ConfigError
from rlconform.launch.compare_verdicts import (
    GateChange,
    changes_sentence,
    compare_verdicts,
    is_verdict,
    is_worse,
    read_verdict,
)

EPILOG = (
    "Examples:\n\n"
    "rlconform diff reports/acme-1.4 reports/acme-1.5\n\n"
    "rlconform diff last-release rlconform-report --html diff.html\n\n"
    "rlconform diff last-night/RECIPE jobs/RECIPE\n\n"
    "Folders of judged jobs are compared by their gates.\n\n"
    "Exit codes: 0 nothing got worse, 1 a requirement is newly broken or no longer passes, or a "
    "gate is worse, 2 a report can't be read."
)


def diff(
    old: Annotated[
        Path, typer.Argument(metavar="OLD", help="The --out folder of the earlier run.")
    ],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The --out folder of the later run.")],
    html: Annotated[Path | None, typer.Option(help="Write a page here.")] = None,
) -> None:
    """Compare two reports: what is newly broken, what is repaired, what was certified."""
    if is_verdict(old) or is_verdict(new):
        raise typer.Exit(_diff_jobs(old, new, html))
    try:
        compared = diff_reports(read_report(old), read_report(new))
        if html is not None:
            write_page(html, render_diff(compared))
    except ConfigError as error:
        fail(f"diff: {error}")
    console = new_console()
    _print(console, compared)
    if html is not None:
        console.print(f"page: {escape(str(html))}", soft_wrap=True)
    raise typer.Exit(ExitCode.FAILURE if compared.is_worse else ExitCode.SUCCESS)


def _diff_jobs(old: Path, new: Path, html: Path | None) -> ExitCode:
    try:
        if html is not None:
            raise ConfigError("--html is for reports of certify; these are verdicts of jobs")
        changes = compare_verdicts(read_verdict(old), read_verdict(new))
    except ConfigError as error:
        fail(f"diff: {error}")
    console = new_console()
    if changes:
        console.print(_gate_table(changes))
    console.print(f"[bold]{changes_sentence(changes)}[/]", highlight=False)
    return ExitCode.FAILURE if is_worse(changes) else ExitCode.SUCCESS


def _gate_table(changes: list[GateChange]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "Gate", "Was", "Now", "What was found"):
        table.add_column(heading, overflow="fold")
    for change in changes:
        outcomes = [str(part.outcome) if part else "none" for part in (change.old, change.new)]
        found = change.new or change.old
        message = escape(found.message[:300]) if found else ""
        table.add_row(str(change.kind), escape(change.gate), *outcomes, message)
    return table


def _print(console: Console, compared: ReportDiff) -> None:
    for name, was, now in compared.header:
        console.print(f"{escape(name)}: {escape(was)} -> {escape(now)}", highlight=False)
    if compared.changes:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for heading in ("Requirement", "Was", "Now", "", "What it requires, and what was found"):
            table.add_column(heading, overflow="fold")
        for change in compared.changes:
            kind = "" if change.kind is ChangeKind.OTHER else str(change.kind)
            reason = change.new.reason[:300] if change.new else ""
            text = escape(change.title) + (f"\n[dim]{escape(reason)}[/]" if reason else "")
            table.add_row(escape(change.id), _outcome(change.old), _outcome(change.new), kind, text)
        console.print(table)
    if compared.not_compared:
        count = len(compared.not_compared)
        console.print(f"{count} requirements whose checks one of the runs did not select")
    if compared.still_broken:
        broken = escape(", ".join(compared.still_broken))
        console.print(f"broken in both: {broken}", highlight=False)
    console.print(f"[bold]{escape(diff_sentence(compared))}[/]", highlight=False)


def _outcome(part: RequirementPart | None) -> str:
    return f"[{STYLE[part.outcome]}]{part.outcome}[/]" if part else "not counted"
