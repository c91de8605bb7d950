"""Console output of a self-test: a line for each trial when it ends, then a summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rlconform._live_bar import LiveBar
from rlconform.mutants.mutant import Mutant
from rlconform.selftest.classify import GOOD, TrialResult
from rlconform.selftest.kill_matrix import KillMatrix


class TrialProgress(LiveBar):
    """A progress bar, and a line for each failed trial; without a terminal, for each trial.

    Attributes:
        heard: The results, in the order in which the trials ended.
    """

    def __init__(self, console: Console, total: int) -> None:
        super().__init__(console, "on trial", total)
        self.heard: list[TrialResult] = []

    def hear(self, judgement: TrialResult) -> None:
        """Record and show the result of a trial."""
        self.heard.append(judgement)
        self.advance()
        self.show(judgement.name[:34])
        good = judgement.kind in GOOD
        if not good or not self.console.is_terminal:
            style = "green" if good else "bold red"
            detail = f": {escape(judgement.detail)}" if judgement.detail else ""
            self.console.print(f"[{style}]{judgement.kind}[/] {escape(judgement.name)}{detail}")


def mutant_table(mutants: Mapping[str, Mutant]) -> Table:
    """One row for each mutant: the requirements that must kill it, and its defect in a sentence."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Mutant", "Must fail", "Its defect"):
        table.add_column(heading, no_wrap=heading == "Mutant")
    for name, mutant in mutants.items():
        first = mutant.rationale.partition("\n\n")[0].replace("\n", " ")
        table.add_row(escape(name), ", ".join(mutant.fails), escape(first))
    return table


def judgement_table(judgements: Sequence[TrialResult]) -> Table:
    """One row for each target: outcome, violated requirements and duration."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("Target", "Came", "Broke", "s"):
        table.add_column(
            heading, no_wrap=heading != "Broke", justify="right" if heading == "s" else "left"
        )
    for one in judgements:
        style = "green" if one.kind in GOOD else "bold red"
        broke = ", ".join(one.broken) + (
            f" ({one.detail})" if one.detail and one.kind in GOOD else ""
        )
        table.add_row(escape(one.name), f"[{style}]{one.kind}[/]", broke, f"{one.seconds:.1f}")
    return table


def print_summary(
    console: Console, judgements: Sequence[TrialResult], matrix: KillMatrix | None
) -> None:
    """Print the number of each outcome, and two counts of the matrix unless it is None."""
    counted = Counter(one.kind for one in judgements)
    console.print(", ".join(f"{count} {kind}" for kind, count in counted.items()))
    if matrix is None:
        return
    alone = sum(bool(row.alone) for row in matrix.rows)
    console.print(
        f"{alone} of {len(matrix.rows)} requirements have a mutant that they alone catch; "
        f"{sum(not row.mutants for row in matrix.rows)} have none"
    )
