"""What the commands have in common on a terminal: a console, a refusal, a bar of progress."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import NoReturn, Self

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def new_console() -> Console:
    """Standard output; what goes to a file or a pipe has lines of 120 characters.

    Without emoji codes: ``sig:factory: x`` in a plane's message is no factory.
    """
    return Console(width=None if sys.stdout.isatty() else 120, emoji=False)


def refuse(message: str, code: int) -> NoReturn:
    """Say in one line on standard error what is wrong, and end the command with this exit code."""
    sys.stdout.flush()
    console = Console(stderr=True, emoji=False)
    console.print(f"[bold red]rlconform:[/] {escape(message)}", soft_wrap=True)
    raise typer.Exit(code)


class LiveBar:
    """A bar while something long is under way; it leaves nothing behind.

    Attributes:
        console: Where it is shown; lines printed there stay above the bar.
        bar: The bar itself.
    """

    def __init__(self, console: Console, doing: str, total: int | None = None) -> None:
        self.console = console
        self.bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task(doing, total=total)

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def show(
        self, doing: str | None = None, total: int | None = None, done: int | None = None
    ) -> None:
        """Say what is under way (plain text), of how many steps in all, and how many are done."""
        self.bar.update(self._task, description=doing, total=total, completed=done)

    def advance(self) -> None:
        """One step more is done."""
        self.bar.advance(self._task)
