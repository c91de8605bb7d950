"""The commands ``list`` and ``explain``: what the contract requires."""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from rlconform.cli.console import fail, new_console
from rlconform.contract import Requirement, did_you_mean, load_requirements
from rlconform.selftest.evidence import evidence_of

LIST_EPILOG = (
    "Examples:\n\n"
    "rlconform list CLAIM\n\n"
    "rlconform list --json | jq '.[] | select(.level == \"MUST\") | .id'"
)
EPILOG = "Example: rlconform explain CLAIM-02"


def list_requirements(
    section: Annotated[str, typer.Argument(help="Only one section, e.g. CLAIM.")] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with checks and mutants.")
    ] = False,
) -> None:
    """List the requirements of the contract."""
    rows = load_requirements().values()
    shown = [row for row in rows if not section or row.section == section.upper()]
    if not shown:
        sections = ", ".join(Counter(row.section for row in rows))
        fail(f"no section {section!r}; there are {sections}")
    if as_json:
        sys.stdout.write(json.dumps([_as_json(row) for row in shown], indent=2) + "\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Requirement", "Strength", "Level", "Needs", "Since", "Title"):
        table.add_column(heading, no_wrap=heading != "Title")
    for row in shown:
        needs = ", ".join(row.capability) or ("kit" if row.scope == "kit" else "")
        table.add_row(row.id, row.level, row.profile, needs, row.since, escape(row.title))
    new_console().print(table)


def _as_json(row: Requirement) -> dict[str, Any]:
    evidence = evidence_of(row)
    mutants = [mutant.name for mutant in evidence.mutants]
    return asdict(row) | {"section": row.section, "checks": evidence.checks, "mutants": mutants}


def explain(
    requirement: Annotated[str, typer.Argument(help="A requirement's id, e.g. CLAIM-02.")],
) -> None:
    """Show a requirement: sentence, reason, past incidents, checks and mutants."""
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
    evidence = evidence_of(row)
    for incident in evidence.incidents:
        seen = f"Seen in {incident.system} ({incident.id}): {incident.what}"
        console.print(f"\n{escape(seen)}")
    console.print("\nChecks:" if evidence.checks else f"\nNo check: {escape(row.unchecked)}")
    for name in evidence.checks:
        console.print(f"  {escape(name)}", highlight=False, soft_wrap=True)
    if evidence.mutants:
        console.print("\nMutants that the checks must kill (rlconform self-test --mutant NAME):")
    for mutant in evidence.mutants:
        where = f"{mutant.file}::{mutant.definition}"
        console.print(f"  {mutant.name}  {where}", highlight=False, soft_wrap=True)
        console.print(f"      {escape(mutant.defect)}", highlight=False)
    if evidence.why_no_mutant:
        console.print(f"\nNo mutant: {escape(evidence.why_no_mutant)}")
    elif row.excluded:
        console.print(f"\nNo mutant is killed by it alone: {escape(row.excluded)}")
