"""``Anomaly``: what a checker found, with the fewest operations that prove it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.operation import Operation


@dataclass(frozen=True)
class Anomaly:
    """A result that no order of the calls can explain."""

    kind: str  # a key of ``explain.IMPACT``
    row: Any  # the sample id concerned, or None
    description: str  # what happened, as one sentence without a full stop
    operations: tuple[Operation, ...]  # the shortest history that proves it, ordered by start


#: Finds every anomaly of one kind in a history.
Checker = Callable[[History], Iterator[Anomaly]]


def anomaly(kind: str, row: Any, description: str, *operations: Operation) -> Anomaly:
    """Build an anomaly whose operations are ordered by start and without duplicates."""
    ordered = sorted({id(op): op for op in operations}.values(), key=lambda op: op.start)
    return Anomaly(kind, row, description, tuple(ordered))


def shortest_first(anomalies: Iterable[Anomaly]) -> list[Anomaly]:
    """Return anomalies with the shortest proof first, of equally short ones the earliest."""
    return sorted(anomalies, key=lambda a: (len(a.operations), a.operations[0].start))


def ms(seconds: float) -> str:
    """Return a time span in milliseconds as text, for descriptions."""
    return f"{1000 * seconds:.1f} ms"
