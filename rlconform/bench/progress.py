"""Live progress of a bench run: a runner tells what it does, a person sees it.

The runner knows no terminal: it calls ``hear`` with plain mappings. Events and their keys::

    {"event": "plan", "turns": int}                      how many turns are to come, all in all
    {"event": "target", "target": str, "status": str, "reason": str}
                                                         a station is "ready", or "failed" and why
    {"event": "contest", "what": str}                    all targets' turns at one measurement begin
    {"event": "turn", "target": str, "what": str}        a turn begins, e.g. "llama8b 3/7"
    {"event": "turn_done"}                               it ended, whatever came of it
    {"event": "refused", "target": str, "what": str, "reason": str}
    {"event": "note", "text": str}

An event of another name is ignored, so that a runner may tell more than is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class LiveProgress:
    """A bar of turns; where there is no terminal, a line for each measurement.

    with LiveProgress(console) as progress:
        runner = Runner(options, progress.hear)
    """

    def __init__(self, console: Console) -> None:
        self.bar = Progress(
            TextColumn("{task.description}", markup=True),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self.bar.add_task("starting the planes", total=None)

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

    def hear(self, event: Mapping[str, Any]) -> None:
        """Show what ``event`` means to somebody who waits."""
        match event["event"]:
            case "plan":
                self.bar.update(self._task, total=event["turns"])
            case "target" if event["status"] == "failed":
                self._say("bold red", "failed", event["target"], event["reason"])
            case "target":
                self._say("green", event["status"], event["target"], event.get("reason", ""))
            case "contest" if not self.bar.console.is_terminal:
                self._say("blue", "measure", event["what"])
            case "turn":
                described = f"[bold]{escape(event['target'])}[/] {escape(event['what'])}"
                self.bar.update(self._task, description=described)
            case "turn_done":
                self.bar.advance(self._task)
            case "refused":
                self._say("yellow", "refused", event["target"], event["what"], event["reason"])
            case "note":
                self._say("yellow", "note", event["text"])

    def _say(self, style: str, word: str, subject: str, *more: str) -> None:
        """One line that stays above the bar: ``word subject: more: more``."""
        told = ": ".join(escape(text) for text in (subject, *more) if text)
        self.bar.console.print(f"[{style}]{word:<8}[/] {told}", highlight=False)
