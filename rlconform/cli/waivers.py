"""The ``waivers`` command: drafts a waiver file from the failures of a report."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlconform.certify.report.document import read_report
from rlconform.certify.report.draft_waivers import WaiverDraft, draft_waivers, waiver_file
from rlconform.certify.report.waivers import load_waivers
from rlconform.cli.console import fail, new_console
from rlconform.cli.pages import write_page
from rlconform.contract import ConfigError

EPILOG = (
    "Examples:\n\n"
    "rlconform waivers rlconform-report\n\n"
    "rlconform waivers rlconform-report --write --issue https://tracker.example.org/137 "
    "--reason 'fixed in the next release'\n\n"
    "Then: rlconform certify TARGET --waivers waivers.toml --allow-deviations"
)


def waivers(
    report: Annotated[
        Path, typer.Argument(metavar="DIR", help="The --out folder of certify.")
    ] = Path("rlconform-report"),
    write: Annotated[
        bool, typer.Option("--write", help="Write the file; without it, print the draft.")
    ] = False,
    out: Annotated[
        Path, typer.Option(help="The file; waivers in it that still apply are kept.")
    ] = Path("waivers.toml"),
    reason: Annotated[str, typer.Option(help="Reason of the new waivers.")] = "",
    issue: Annotated[str, typer.Option(help="Address of the issue of the new waivers.")] = "",
    days: Annotated[int, typer.Option(min=1, help="Days until the new waivers expire.")] = 90,
) -> None:
    """Draft the waiver file from the failures of a report."""
    expires = (datetime.now(UTC) + timedelta(days=days)).date()
    console = new_console()
    try:
        document = read_report(report)
        present = load_waivers(out) if write and out.exists() else []
        draft = draft_waivers(document, present, expires, reason, issue)
        text = waiver_file(document, draft.waivers)
        if write and (draft.waivers or draft.dropped):
            write_page(out, text)
    except ConfigError as error:
        fail(f"waivers: {error}")
    if not write:
        console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    console.print(escape(_sentence(draft, out)), highlight=False, soft_wrap=True)


def _sentence(draft: WaiverDraft, out: Path) -> str:
    if not draft.waivers and not draft.dropped:
        return f"Nothing is broken: {out} was not written."
    parts = [f"{out} has {len(draft.waivers)} waivers, {len(draft.added)} of them new"]
    if any(not (waiver.reason and waiver.issue) for waiver in draft.waivers):
        parts.append("certify takes it once each has a reason and an issue")
    if draft.dropped:
        parts.append(f"dropped, as they no longer fail: {', '.join(draft.dropped)}")
    return "; ".join(parts) + "."
