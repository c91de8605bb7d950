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
from typing import Any

from rich.console import Console
from rich.markup import escape

from rlconform._live_bar import LiveBar


class BenchProgress(LiveBar):
    """A bar of turns; where there is no terminal, a line for each measurement.

    with LiveProgress(console) as progress:
        runner = Runner(options, progress.hear)
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console, "starting the planes")

    def hear(self, event: Mapping[str, Any]) -> None:
        """Show what ``event`` means to somebody who waits."""
        match event["event"]:
            case "plan":
                self.show(total=event["turns"])
            case "target" if event["status"] == "failed":
                self._say("bold red", "failed", event["target"], event["reason"])
            case "target":
                self._say("green", event["status"], event["target"], event.get("reason", ""))
            case "contest" if not self.console.is_terminal:
                self._say("blue", "measure", event["what"])
            case "turn":
                self.show(f"{event['target']} {event['what']}")
            case "turn_done":
                self.advance()
            case "refused":
                self._say("yellow", "refused", event["target"], event["what"], event["reason"])
            case "note":
                self._say("yellow", "note", event["text"])

    def _say(self, style: str, word: str, subject: str, *more: str) -> None:
        """One line that stays above the bar: ``word subject: more: more``."""
        told = ": ".join(escape(text) for text in (subject, *more) if text)
        self.console.print(f"[{style}]{word:<8}[/] {told}", highlight=False)
