"""A progress bar for commands that take long: ``certify``, ``self-test`` and ``bench``."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column


class LiveBar:
    """A progress bar that removes itself when the work is done.

    Lines printed on its ``console`` stay above the ``bar``.
    """

    def __init__(self, console: Console, doing: str, total: int | None = None) -> None:
        self.console = console
        self.bar = Progress(
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[more]}", markup=False),
            # Last, so that figures stay in place; a name that is wider than the rest of the line
            # goes on in the next one.
            TextColumn("{task.description}", markup=False, table_column=Column(overflow="fold")),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task(doing, total=total, more="")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def show(
        self,
        doing: str | None = None,
        total: int | None = None,
        done: int | None = None,
        more: str | None = None,
    ) -> None:
        """Update the description (plain text), the number of steps, how many are done, and more."""
        self.bar.update(self._task, description=doing, total=total, completed=done)
        if more is not None:
            self.bar.update(self._task, more=more)

    def advance(self) -> None:
        """Count one more step as done."""
        self.bar.advance(self._task)
