"""Checkers of single calls: valid calls that raised, and calls that hung."""

from __future__ import annotations

from collections.abc import Iterator

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.history import History


def refused(history: History) -> Iterator[Anomaly]:
    """Find valid calls that raised, except reads and registrations.

    Other checkers judge reads, and a plane may refuse to register a partition that holds rows.
    """
    for op in history.operations:
        if op.error and op.op not in {"get", "register"}:
            text = f"{op.who}'s {op.op} raised {op.error}"
            row = op.ids[0] if op.ids else None
            yield anomaly("refused", row, text, op)


def refused_alone(history: History) -> Iterator[Anomaly]:
    """Find what ``refused`` finds, except puts whose rows another call wrote or cleared meanwhile.

    The contract lets a plane fail one of two such calls, as long as the rows stay correct.
    """
    for found in refused(history):
        op = found.operations[0]
        if op.op != "put" or not history.contended(op):
            yield found


def hung(history: History) -> Iterator[Anomaly]:
    """Find calls that did not return within the target's deadline, though their process lived."""
    for op in history.operations:
        if op.end is None and not op.killed:
            text = f"{op.who}'s {op.op} did not return"
            yield anomaly("hung", op.ids[0] if op.ids else None, text, op)
