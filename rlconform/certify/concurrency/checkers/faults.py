"""Checkers of runs with faults: late answers, and what was acknowledged after a process was lost.

The deadlines are those of the target, so each checker is made for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlconform.certify.concurrency.anomaly import Anomaly, Checker, anomaly
from rlconform.certify.concurrency.checkers.reads import stale_reads
from rlconform.certify.concurrency.history import History
from rlconform.certify.concurrency.operation import Operation

#: Errors that say that the plane or its network is at fault, by their names or their bases'.
TYPED = frozenset({"ConnectionError", "TimeoutError", "OSError", "DataPlaneError"})


def late(operation_s: float) -> Checker:
    """Return a checker for answers later than ``operation_s``, and a claim's own wait."""

    def late(history: History) -> Iterator[Anomaly]:
        for op in history.operations:
            if op.end is not None and op.end - op.start > operation_s + op.waits:
                text = (
                    f"{op.who}'s {op.op} took {op.end - op.start:.1f} s, and its deadline was "
                    f"{operation_s + op.waits:g} s"
                )
                yield anomaly("late", op.ids[0] if op.ids else None, text, op)

    return late


def unkept(since: float) -> Checker:
    """Return a checker for puts acknowledged after ``since`` whose rows can't be read.

    Rows from before are lost with the process that held them; a put that reports success on a
    plane that lost that process must keep its rows.
    """

    def unkept(history: History) -> Iterator[Anomaly]:
        return stale_reads(History([op for op in history.operations if op.start > since]))

    return unkept


def untyped_errors(history: History, since: float) -> Sequence[Operation]:
    """Return calls after ``since`` whose error does not say that the plane is at fault.

    A read of a row that is gone may say so with a ``LookupError``.
    """
    allowed = TYPED | {"LookupError"}
    return [
        op
        for op in history.operations
        if op.error and op.start > since and not allowed.intersection(op.error_bases)
    ]
