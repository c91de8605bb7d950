"""The commands ``list`` and ``explain``: what the contract requires."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from rlconform._resources import resource_dir
from rlconform.certify.requirement_index import checks_by_requirement
from rlconform.cli.console import fail, new_console
from rlconform.contract import did_you_mean, load_requirements
from rlconform.contract.incidents import load_incidents

EPILOG = "Example: rlconform explain CLAIM-02"


def list_requirements(
    section: Annotated[str, typer.Argument(help="Only one section, e.g. CLAIM.")] = "",
) -> None:
    """List the requirements of the contract."""
    rows = load_requirements().values()
    shown = [row for row in rows if not section or row.section == section.upper()]
    if not shown:
        sections = ", ".join(Counter(row.section for row in rows))
        fail(f"no section {section!r}; there are {sections}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Requirement", "Level", "Profile", "Needs", "Since", "Title"):
        table.add_column(heading, no_wrap=heading != "Title")
    for row in shown:
        needs = ", ".join(row.capability) or ("kit" if row.scope == "kit" else "")
        table.add_row(row.id, row.level, row.profile, needs, row.since, escape(row.title))
    new_console().print(table)


def explain(
    requirement: Annotated[str, typer.Argument(help="A requirement's id, e.g. CLAIM-02.")],
) -> None:
    """Show a requirement: its sentence, the reason for it, past incidents, and its checks."""
    row = load_requirements().get(requirement.upper())
    if row is None:
        suggestion = did_you_mean(requirement.upper(), load_requirements())
        fail(f"{requirement}: no such requirement{suggestion}; `rlconform list` shows all")
    console = new_console()
    console.print(f"[bold]{row.id}[/] {row.level}, {row.scope}, from level {row.profile}")
    console.print(f"[bold]{escape(row.title)}[/]\n")
    console.print(f"{escape(row.sentence)}\n")
    console.print(f"Why: {escape(row.why)}")
    if row.capability:
        console.print(f"Applies to planes that declare: {', '.join(row.capability)}")
    console.print(f"Since: {row.since}")
    failures = load_incidents()
    for failure in (failures[seen] for seen in row.seen):
        console.print(f"\nSeen in {escape(failure.system)} ({failure.id}): {escape(failure.what)}")
    marked = checks_by_requirement(resource_dir("suites"))
    checks = [name for name, marks in marked.items() if row.id in marks]
    console.print("\nChecks:" if checks else f"\nNo check: {escape(row.unchecked)}")
    for name in checks:
        console.print(f"  {escape(name)}", highlight=False)
