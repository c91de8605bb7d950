"""The console that the commands share, and how a command fails."""

from __future__ import annotations

import sys
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from rlconform._exit_codes import ExitCode

#: What a text of a file must not do to a terminal, as the picture of each character.
_SHOWN = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"}
_SHOWN |= dict.fromkeys([*range(0x7F, 0xA0), *range(0xD800, 0xE000)], 0xFFFD)


class PlainConsole(Console):
    """A console that shows control characters of a text, and halves of surrogate pairs."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the text as rich renders it."""
        return super().render_str(text.translate(_SHOWN), **options)


def new_console() -> Console:
    """Return a console on standard output, 120 characters wide if that is not a terminal.

    Emoji codes are off: ``sig:factory: x`` in a plane's message must be printed unchanged.
    """
    return PlainConsole(width=None if sys.stdout.isatty() else 120, emoji=False)


def fail(message: str, code: ExitCode = ExitCode.KIT_FAILED) -> NoReturn:
    """Print one line on standard error and end the command with this exit code."""
    raise typer.Exit(report(message, code))


def report(message: str, code: ExitCode = ExitCode.KIT_FAILED) -> ExitCode:
    """Print one line on standard error and return the exit code."""
    sys.stdout.flush()
    console = PlainConsole(stderr=True, emoji=False)
    console.print(f"[bold red]rlconform:[/] {escape(message)}", soft_wrap=True)
    return code
