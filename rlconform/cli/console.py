"""The console that the commands share, and how a command fails."""

from __future__ import annotations

import sys
from typing import NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from rlconform._exit_codes import ExitCode


def new_console() -> Console:
    """Return a console on standard output, 120 characters wide if that is not a terminal.

    Emoji codes are off: ``sig:factory: x`` in a plane's message must be printed unchanged.
    """
    return Console(width=None if sys.stdout.isatty() else 120, emoji=False)


def fail(message: str, code: ExitCode = ExitCode.KIT_FAILED) -> NoReturn:
    """Print one line on standard error and end the command with this exit code."""
    raise typer.Exit(report(message, code))


def report(message: str, code: ExitCode = ExitCode.KIT_FAILED) -> ExitCode:
    """Print one line on standard error and return the exit code."""
    sys.stdout.flush()
    console = Console(stderr=True, emoji=False)
    console.print(f"[bold red]rlconform:[/] {escape(message)}", soft_wrap=True)
    return code
