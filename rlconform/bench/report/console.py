"""Prints a bench document in the terminal: machine, targets, ratios, figures."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from rlconform.bench.document import MARK, BenchDocument, TargetResult
from rlconform.bench.report.pivot import PivotCell, PivotTable
from rlconform.bench.report.tables import absolute_tables, gaps, ratio_tables
from rlconform.bench.report.units import plain

_WIDEST_LABEL = 34
_ANY_WIDTH = 10_000


def print_document(console: Console, document: BenchDocument) -> None:
    """Print machine, targets, ratios, figures and what is missing, but not the minor tables."""
    _print_head(console, document)
    for table in [*ratio_tables(document), *absolute_tables(document), gaps(document)]:
        if table.rows and not table.minor:
            _print_table(console, table)
    _print_foot(console, document)


def write_page(console: Console, document: BenchDocument, path: Path) -> bool:
    """Write the HTML page and return True; if matplotlib is missing, say so and return False."""
    if find_spec("matplotlib") is None:
        needs = "No page with plots: it needs matplotlib; run `pip install 'rlconform[bench]'`."
        console.print(needs, markup=False, highlight=False, soft_wrap=True)
        return False
    from rlconform.bench.report import html  # noqa: PLC0415 - needs the extra

    html.write_page(document, path)
    return True


def _print_head(console: Console, document: BenchDocument) -> None:
    host = document.host
    versions = ", ".join(f"{name} {version}" for name, version in host.versions.items())
    machine = (
        f"{host.cpu}, {host.cores} cores, {plain(host.memory_gib)} GiB, {host.system}; "
        f"load {plain(host.load_at_start)} at the start; {versions}"
    )
    console.print(machine, markup=False, highlight=False)
    for target in document.targets:
        console.print(_describe(target), highlight=False)


def _describe(target: TargetResult) -> str:
    named = " ".join(part for part in (target.name, target.version) if part)
    where = "across processes" if target.processes else ""
    if target.in_one_process:
        where = f"within one process {MARK}"
    failure = f"[bold red]failed[/]: {escape(target.reason)}" if target.status == "failed" else ""
    parts = ", ".join(part for part in (escape(named), where, failure) if part)
    return f"  [bold]{escape(target.spec)}[/]: {parts}"


def _print_table(console: Console, table: PivotTable) -> None:
    console.print()
    console.print(f"[bold underline]{escape(table.title)}[/]", highlight=False)
    console.print(table.caption, style="dim", markup=False, highlight=False)
    wide = _rich_table(table, spread_below=False)
    unbounded = console.options.update(max_width=_ANY_WIDTH)
    fits = console.measure(wide, options=unbounded).maximum <= console.width
    console.print(wide if fits else _rich_table(table, spread_below=True))


def _rich_table(table: PivotTable, *, spread_below: bool) -> RichTable:
    """Build the table with each spread beside its figure or, for a narrow terminal, below it."""
    shown = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    labels = len(table.headings) - len(table.rows[0].cells)
    prose = any(cell.kind == "prose" for cell in table.rows[0].cells)
    for heading in table.headings[:labels]:
        shown.add_column(escape(heading), no_wrap=not prose, max_width=_WIDEST_LABEL)
    for heading in table.headings[labels:]:
        shown.add_column(escape(heading), justify="left" if prose else "right", overflow="fold")
    previous = ""
    for row in table.rows:
        first, *others = row.labels
        repeated = len(row.labels) > 1 and first == previous
        cells = (_text(cell, "\n" if spread_below else " ") for cell in row.cells)
        shown.add_row(*map(escape, ["" if repeated else first, *others]), *cells)
        previous = first
    return shown


def _text(cell: PivotCell, separator: str) -> str:
    if cell.kind == "gap":
        return f"[yellow]{escape(cell.text)}[/]"
    spread = f"{separator}[dim]{escape(cell.spread)}[/]" if cell.spread else ""
    return f"{escape(cell.text)}{spread}"


def _print_foot(console: Console, document: BenchDocument) -> None:
    console.print()
    if any(target.in_one_process for target in document.targets):
        console.print(f"{MARK} measured within one process: not comparable to the others.")
    for note in document.notes:
        console.print(f"[yellow]note:[/] {escape(note)}", highlight=False)
    if document.quick:
        _warn(console, "A quick run: it shows orders of magnitude; don't quote it.")
    if not document.complete:
        _warn(console, "Partial: the run was interrupted; what is missing was not measured.")
    failed = [target.spec for target in document.targets if target.status == "failed"]
    if failed:
        _warn(console, f"Failed: {', '.join(failed)}.")
    console.print(
        f"{len(document.targets) - len(failed)} of {len(document.targets)} targets measured on "
        f"{len(document.shapes)} shapes in {document.seconds:.0f} s",
        highlight=False,
    )


def _warn(console: Console, text: str) -> None:
    console.print(text, style="bold yellow", markup=False, highlight=False)
