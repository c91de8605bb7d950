"""The ``check-r3`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from rlconform._exit_codes import ExitCode
from rlconform.cli.console import fail, new_console
from rlconform.contract import ConfigError
from rlconform.grpo.router_replay.check import check_trace
from rlconform.grpo.router_replay.trace_records import read_trace

EPILOG = (
    "Examples:\n\n"
    "RLCONFORM_R3_TRACE=run/r3 rlconform train tiny_moe_copy policy.router_replay.enabled=true\n\n"
    "rlconform check-r3 run/r3\n\n"
    "docs/router_replay.md says what a trace holds.\n\n"
    "Exit codes: 0 every token was replayed as it was recorded, 1 not so, or nothing was replayed, "
    "2 the trace can't be read."
)


def check_r3(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace's folder, or one file.")],
) -> None:
    """Prove, token by token, that training used the experts that generation chose."""
    try:
        verdict = check_trace(read_trace(trace))
    except ConfigError as error:
        fail(f"check-r3: {error}")
    except OSError as error:
        fail(f"check-r3: {error.filename}: {error.strerror}; name files that can be read")
    console = new_console()
    for sentence in verdict.failures:
        console.print(f"[red]FAIL[/] {escape(sentence)}", highlight=False)
    console.print(
        f"{verdict.tokens} replayed tokens of {verdict.rows} rows: "
        f"{len(verdict.failures) or 'no'} failure{'s' * (len(verdict.failures) != 1)}"
    )
    raise typer.Exit(ExitCode.FAILURE if verdict.failures else ExitCode.SUCCESS)
