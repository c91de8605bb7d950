"""``BenchProgress``: shows in the terminal what a bench run is doing."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from rlconform._live_bar import LiveBar

_STYLES = {"ready": "green", "failed": "bold red", "refused": "yellow", "measure": "blue"}


class BenchProgress(LiveBar):
    """A bar of turns; without a terminal, a line for each measurement."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, "starting the planes")

    def line(self, word: str, *texts: str) -> None:
        """Print one line that stays above the bar: ``word text: text``."""
        text = ": ".join(map(escape, texts))
        self.console.print(f"[{_STYLES[word]}]{word:<8}[/] {text}", highlight=False)

    def measurement(self, title: str) -> None:
        """A measurement begins; the bar names it with each turn."""
        if not self.console.is_terminal:
            self.line("measure", title)
