"""``Finding``: a verdict with the fewest events that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlconform.certify.history.events import Event
from rlconform.certify.history.timeline import History


@dataclass(frozen=True)
class Finding:
    """What a plane did that no order of the calls can explain.

    Attributes:
        verdict: Its name, a key of ``explain.MEANS``.
        row: The sample concerned; None where it is none in particular.
        said: What happened, in one sentence without its full stop.
        events: The shortest history that proves it, in the order of their starts.
    """

    verdict: str
    row: Any
    said: str
    events: tuple[Event, ...]


#: A verdict: every violation of one kind that a history shows.
Checker = Callable[[History], Iterator[Finding]]


def finding(verdict: str, row: Any, said: str, *events: Event) -> Finding:
    """A finding with its events in order, each once."""
    ordered = sorted({id(event): event for event in events}.values(), key=lambda e: e.start)
    return Finding(verdict, row, said, tuple(ordered))
