"""Prints a self-test on the console: a line for each trial, a table, a summary, what was wrong.

A log of CI has hundreds of lines of right outcomes. So the wrong ones are at the end of the table,
and once more after all else, each with its reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform._live_bar import LiveBar
from rlconform.mutants.defect import Defect
from rlconform.mutants.mutant import Mutant
from rlconform.selftest.classify import GOOD, TrialResult
from rlconform.selftest.kill_matrix import KillMatrix


class TrialProgress(LiveBar):
    """A progress bar, and a line for each failed trial; without a terminal, for each trial.

    ``results`` are in the order in which the trials ended.
    """

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(console, "starting", total)
        self.results: list[TrialResult] = []

    def record(self, result: TrialResult) -> None:
        """Record and show the result of a trial."""
        self.results.append(result)
        self.advance()
        self.show(result.name)
        good = result.kind in GOOD
        if not good or not self.console.is_terminal:
            style = "green" if good else "bold red"
            detail = f": {escape(result.detail)}" if result.detail else ""
            self.console.print(f"[{style}]{result.kind}[/] {escape(result.name)}{detail}")


def mutant_table(mutants: Mapping[str, Mutant]) -> Table:
    """Build a table of mutants: the requirements that must kill each, and its defect."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Mutant", "Must be killed by", "Its defect"):
        table.add_column(heading, no_wrap=heading == "Mutant")
    for name, mutant in mutants.items():
        first = mutant.rationale.partition("\n\n")[0].replace("\n", " ")
        table.add_row(escape(name), ", ".join(mutant.fails), escape(first))
    return table


def defect_table(defects: Mapping[str, Defect]) -> Table:
    """Build a table of defects of the trainer: the rules that must find each, and what is wrong."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Defect of the trainer", "Must be found by", "What it does wrong"):
        table.add_column(heading, no_wrap=heading.startswith("Defect"))
    for name, defect in defects.items():
        first = defect.rationale.partition("\n\n")[0].replace("\n", " ")
        table.add_row(escape(name), ", ".join(defect.found_by) or "no log shows it", escape(first))
    return table


def result_table(results: Sequence[TrialResult]) -> Table:
    """Build a table of targets, wrong outcomes last: outcome, violated requirements, seconds."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Target", no_wrap=True)
    table.add_column("Outcome", no_wrap=True)
    table.add_column("Killed by")
    table.add_column("s", no_wrap=True, justify="right")
    for one in sorted(results, key=lambda one: one.kind not in GOOD):
        good = one.kind in GOOD
        outcome = f"[{'green' if good else 'bold red'}]{one.kind}[/]"
        detail = f" ({one.detail})" if one.detail and good else ""
        killed_by = ", ".join(one.broken) + detail
        table.add_row(escape(one.name), outcome, escape(killed_by), f"{one.seconds:.1f}")
    return table


def print_summary(
    console: Console, results: Sequence[TrialResult], matrix: KillMatrix | None
) -> None:
    """Print counts of outcomes and, with a matrix, of requirements with a mutant or without."""
    counted = Counter(one.kind for one in results)
    console.print(", ".join(f"{count} {kind}" for kind, count in counted.items()))
    if matrix is None:
        return
    alone = sum(bool(row.alone) for row in matrix.rows)
    console.print(
        f"{alone} of {len(matrix.rows)} requirements have a mutant that they alone must kill; "
        f"{sum(not row.mutants for row in matrix.rows)} have none"
    )


def print_wrong(console: Console, results: Sequence[TrialResult], not_tried: int = 0) -> None:
    """Print each target whose outcome is wrong, with its detail, and how many were not tried."""
    for one in results:
        if one.kind not in GOOD:
            detail = f": {escape(one.detail)}" if one.detail else ""
            console.print(f"[bold red]{one.kind}[/] {escape(one.name)}{detail}")
    if not_tried:
        console.print(f"[bold red]Interrupted: {not_tried} were not tried.[/]")
