"""Checkers of runs with faults: late answers, lost acknowledgements, and calls that fail for good.

    a read that raised                              shows
    a ``LookupError``                               that the row was not there
    a ``ConnectionError``, or any other error       nothing: the plane could not answer

The deadlines are those of the target, so some checkers are made for them.
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


def among_answers(checker: Checker) -> Checker:
    """Return the checker for a history without the reads that the plane could not answer."""

    def answered(history: History) -> Iterator[Anomaly]:
        return checker(History([op for op in history.operations if not _unanswered(op)]))

    answered.__name__ = getattr(checker, "__name__", "")
    return answered


def _unanswered(op: Operation) -> bool:
    return op.op == "get" and bool(op.error_bases) and "LookupError" not in op.error_bases


def malformed(history: History) -> Iterator[Anomaly]:
    """Find reads that returned something that is no batch of rows, in place of an error."""
    for read in history.of("get"):
        if read.error and not read.error_bases:
            text = f"{read.who} read {read.ids[0]!r} and got {read.error}"
            yield anomaly("wrong-row", read.ids[0], text, read)


def blind_clears(since: float) -> Checker:
    """Return a checker for clears acknowledged after ``since`` to a caller whose puts all failed.

    The plane can't know that the rows are gone: the next put of an id meets the old bytes.
    """

    def blind_clears(history: History) -> Iterator[Anomaly]:
        after = [op for op in history.operations if op.start > since and op.end is not None]
        working = {op.who for op in after if op.op == "put" and op.ok}
        failing = {op.who for op in after if op.op == "put"} - working
        for op in after:
            if op.op == "clear" and op.ok and op.who in failing:
                text = f"{op.who}'s clear reported success on a plane that refuses its puts"
                yield anomaly("stale-read", op.ids[0] if op.ids else None, text, op)

    return blind_clears


def never_well(since: float) -> Checker:
    """Return a checker for callers of which no call that began after ``since`` worked."""

    def never_well(history: History) -> Iterator[Anomaly]:
        after: dict[str, list[Operation]] = {}
        for op in history.operations:
            if op.start > since and op.end is not None:
                after.setdefault(op.who, []).append(op)
        for who, made in after.items():
            if not any(op.ok for op in made):
                text = f"none of {who}'s {len(made)} calls after the fault worked: {made[-1].error}"
                yield anomaly("refused", None, text, made[-1])

    return never_well


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
