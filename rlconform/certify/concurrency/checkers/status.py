"""Checkers of ``check_consumption_status``, for histories without clears.

    an answer that overlaps                       may be
    a put of a new row                            right with or without the row
    the claim that returns the last row           True or False

A row is *surely unclaimed* from the end of its put to the start of the first claim that returns
it, and *maybe unclaimed* from the start of its put to the end of that claim.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.history import History, Interval, IntervalIndex
from rlconform.certify.concurrency.operation import Operation


class TaskStatus:
    """The status calls of one task, and the times when it surely or maybe had unclaimed rows."""

    def __init__(self, history: History, name: str, answers: list[Operation]) -> None:
        self.name, self.answers = name, answers
        claims = [claim for claim in history.of("claim") if claim.task == name]
        endless = [Interval(claim.start, math.inf, claim) for claim in claims if not claim.ok]
        taking = [Interval(c.start, c.latest, c) for c in claims if c.ok and c.ids]
        surely, maybe = [], []
        for sample_id, puts in history.puts.items():
            returned_by = history.deliveries.get((name, sample_id), [])
            first = min((claim.start for claim in returned_by), default=math.inf)
            last = returned_by[0].latest if returned_by else math.inf
            acknowledged = min(puts, key=lambda put: put.end)
            if not endless:  # a claim without a result may have taken any row
                surely.append(Interval(acknowledged.end, first, acknowledged.operation))
            maybe.append(Interval(puts.by_start[0].start, last, puts.by_start[0].operation))
        self.surely_unclaimed = IntervalIndex(surely)
        self.maybe_unclaimed = IntervalIndex(maybe)
        self.puts = IntervalIndex(put for puts in history.puts.values() for put in puts)
        self.claims = IntervalIndex(taking + endless)


def early_status(history: History) -> Iterator[Anomaly]:
    """Find answers of True though the task had surely not claimed some row that was put."""
    for task in _tasks(history):
        for asked in task.answers:
            row = task.surely_unclaimed.covering(asked.start, asked.latest)
            if asked.answer is True and row is not None:
                text = (
                    f"the status of {task.name!r} was True for {asked.who}, though "
                    f"{row.operation.ids[0]!r} and the other rows of its put were unclaimed"
                )
                yield anomaly("early-status", row.operation.ids[0], text, row.operation, asked)


def late_status(history: History) -> Iterator[Anomaly]:
    """Find answers of False though the task had claimed every row that may have been put."""
    for task in _tasks(history):
        for asked in task.answers:
            if asked.answer is not False or task.maybe_unclaimed.touching(
                asked.start, asked.latest
            ):
                continue
            claim = task.claims.over(asked.start)
            if claim is not None:
                text = (
                    f"the status of {task.name!r} was False for {asked.who}, though all rows "
                    f"that had been put were claimed by then"
                )
                yield anomaly("late-status", None, text, claim.operation, asked)


def non_monotonic(history: History) -> Iterator[Anomaly]:
    """Find successive answers, to any callers, that differ without a call in between to explain it.

    Only a put turns True into False, and only a claim turns False into True.
    """
    for task in _tasks(history):
        answered = {
            was: IntervalIndex(
                Interval(a.start, a.latest, a) for a in task.answers if a.answer is was
            )
            for was in (True, False)
        }
        for asked in task.answers:
            if asked.answer is None:
                continue
            before = answered[not asked.answer].over(asked.start)
            causes = task.claims if asked.answer else task.puts
            if before is None or causes.touching(before.start, asked.latest):
                continue
            cause = "claim" if asked.answer else "put"
            text = (
                f"the status of {task.name!r} was {not asked.answer} for {before.operation.who} "
                f"and {asked.answer} for {asked.who} after it, without a {cause} in between"
            )
            yield anomaly("non-monotonic", None, text, before.operation, asked)


def _tasks(history: History) -> list[TaskStatus]:
    """Return the tasks whose status was read; none after a clear, as ids may then be reused."""
    if history.of("clear"):
        return []
    asked = defaultdict(list)
    for op in history.of("status"):
        if op.ok:
            asked[op.task].append(op)
    return [TaskStatus(history, name, answers) for name, answers in asked.items()]
