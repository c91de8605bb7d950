"""``Anomaly``: a verdict with the fewest events that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.history import History


@dataclass(frozen=True)
class Anomaly:
    """What a plane did that no order of the calls can explain.

    Attributes:
        verdict: Its name, a key of ``explain.IMPACT``.
        row: The sample concerned; None where it is none in particular.
        said: What happened, in one sentence without its full stop.
        events: The shortest history that proves it, in the order of their starts.
    """

    verdict: str
    row: Any
    said: str
    events: tuple[Operation, ...]


#: A verdict: every violation of one kind that a history shows.
Checker = Callable[[History], Iterator[Anomaly]]


def anomaly(verdict: str, row: Any, said: str, *events: Operation) -> Anomaly:
    """A finding with its events in order, each once."""
    ordered = sorted({id(event): event for event in events}.values(), key=lambda e: e.start)
    return Anomaly(verdict, row, said, tuple(ordered))
