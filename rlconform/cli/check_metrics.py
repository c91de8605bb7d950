"""The ``check-metrics`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.contract import ConfigError
from rlconform.grpo.metrics.gates import GateResult
from rlconform.grpo.metrics.gates import check_metrics as check

EPILOG = (
    "Examples:\n\n"
    "rlconform check-metrics run/metrics.jsonl 'mean(train/reward[-10:]) > 0.9'\n\n"
    "rlconform check-metrics run/metrics.jsonl 'max(train/engine_prob_error) < 1.1' "
    "'last(train/loss) < 0.5 * max(train/loss)'\n\n"
    "Functions: min, max, mean, median and last of a metric, or of a window of its values. NaN, a "
    "missing metric, an empty window and a run that ended early always fail.\n\n"
    "Exit codes: 0 all hold, 1 one does not, 2 the file or an expression can't be read."
)


def check_metrics(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A run's metrics.jsonl.")],
    expressions: Annotated[
        list[str], typer.Argument(metavar="EXPR...", help="E.g. 'mean(train/reward[-10:]) > 0.9'.")
    ],
) -> None:
    """Check expressions over the metrics of a run; all must hold, and the run be complete."""
    console = new_console()
    try:
        results = check(file, expressions)
    except ConfigError as error:
        fail(f"check-metrics: {error}")
    console.print(_table(results))
    passed = all(result.passed for result in results)
    raise typer.Exit(ExitCode.SUCCESS if passed else ExitCode.FAILURE)


def _table(results: list[GateResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "Expression", "Values"):
        table.add_column(heading, overflow="fold")
    for result in results:
        values = [f"{text} = {value:g}" for text, value in result.values.items()]
        table.add_row(
            "[green]pass[/]" if result.passed else "[bold red]FAIL[/]",
            escape(result.expression),
            escape("; ".join(filter(None, [result.reason, *values]))),
        )
    return table
