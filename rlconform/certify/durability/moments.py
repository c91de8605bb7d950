"""When a fault comes: pure functions of the calls that a caller has made so far."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from rlconform.certify.concurrency.operation import Op, Operation

#: Whether it is the moment, given a caller's calls so far.
Moment = Callable[[Sequence[Operation]], bool]


def during(kind: Op, after: int = 3) -> Moment:
    """The moment when a call of this kind is under way, of which ``after`` have returned."""

    def now(operations: Sequence[Operation]) -> bool:
        done = sum(op.op == kind and op.ok for op in operations)
        last = operations[-1] if operations else None
        return done >= after and last is not None and last.op == kind and last.end is None

    return now


def typical_s(operations: Sequence[Operation]) -> float:
    """Return how long calls like the last one usually take, in seconds; 0.0 if none has ended."""
    kind = operations[-1].op if operations else None
    return median(
        [op.end - op.start for op in operations if op.op == kind and op.end is not None] or [0.0]
    )


def after_claiming(claims: int = 3) -> Moment:
    """The moment when the last of ``claims`` claims that gave all rows asked for has returned."""

    def now(operations: Sequence[Operation]) -> bool:
        given = [
            op for op in operations if op.op == "claim" and op.ok and 0 < op.asked <= len(op.ids)
        ]
        rest = operations[operations.index(given[-1]) + 1 :] if given else ()
        return len(given) >= claims and all(op.op == "get" for op in rest)

    return now


def has_made(calls: int, since: float = 0.0, well: bool = False) -> Moment:
    """The moment when ``calls`` calls that began after ``since`` have ended; if ``well``, well."""

    def now(operations: Sequence[Operation]) -> bool:
        made = [op for op in operations if op.start > since and op.end is not None]
        return sum(op.ok or not well for op in made) >= calls

    return now


def has_made_each(kinds: Sequence[Op], since: float) -> Moment:
    """The moment when a call of each kind that began after ``since`` has ended."""

    def now(operations: Sequence[Operation]) -> bool:
        made = {op.op for op in operations if op.start > since and op.end is not None}
        return made.issuperset(kinds)

    return now
