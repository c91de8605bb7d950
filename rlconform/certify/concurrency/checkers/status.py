"""Verdicts on ``check_consumption_status``, in a history without clears.

    an answer that overlaps                       may be
    a put of a new row                            with the row or without it
    the claim that hands out the last row         True or False

A row is *surely unclaimed* from the end of its put to the start of the first claim that hands it
out, and *maybe unclaimed* from the start of its put to the end of that claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.history import History, Interval, IntervalIndex


@dataclass(frozen=True)
class TaskStatus:
    """What a history tells of one task: its answers, and when rows were unclaimed by it."""

    name: str
    answers: list[Operation]
    surely_unclaimed: IntervalIndex
    maybe_unclaimed: IntervalIndex
    puts: IntervalIndex
    claims: IntervalIndex


def early_status(history: History) -> Iterator[Anomaly]:
    """True, while a row had been put that the task had surely not claimed."""
    for task in _tasks(history):
        for asked in task.answers:
            row = task.surely_unclaimed.covering(asked.start, asked.latest)
            if asked.answer is True and row is not None:
                said = (
                    f"{asked.who} was told that {task.name!r} had claimed everything, while "
                    f"{row.event.ids[0]!r} and what came with it lay unclaimed"
                )
                yield anomaly("early-status", row.event.ids[0], said, row.event, asked)


def late_status(history: History) -> Iterator[Anomaly]:
    """False, though there are rows and each that may have been put had been claimed before."""
    for task in _tasks(history):
        for asked in task.answers:
            if asked.answer is not False or task.maybe_unclaimed.touching(
                asked.start, asked.latest
            ):
                continue
            claim = task.claims.over(asked.start)
            if claim is not None:
                said = (
                    f"{asked.who} was told that {task.name!r} had rows left, though all that had "
                    f"been put was claimed by then"
                )
                yield anomaly("late-status", None, said, claim.event, asked)


def non_monotonic(history: History) -> Iterator[Anomaly]:
    """Two answers in a row, to whomever, that differ with nothing between them to explain it.

    True turns False by a put alone, False turns True by a claim alone.
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
            said = (
                f"the status of {task.name!r} was {not asked.answer} for {before.event.who} and "
                f"{asked.answer} for {asked.who} after it, without a {cause} in between"
            )
            yield anomaly("non-monotonic", None, said, before.event, asked)


def _tasks(history: History) -> list[TaskStatus]:
    """Every task that was asked about; none where rows were cleared, as lives would mix."""
    if history.of("clear"):
        return []
    asked: dict[str, list[Operation]] = {}
    for event in history.of("status"):
        if event.ok:
            asked.setdefault(event.task, []).append(event)
    return [_task(history, name, answers) for name, answers in asked.items()]


def _task(history: History, name: str, answers: list[Operation]) -> TaskStatus:
    lost_claims = [
        Interval(claim.start, float("inf"), claim)
        for claim in history.of("claim")
        if claim.task == name and not claim.ok
    ]
    surely, maybe = [], []
    for sample_id, puts in history.puts.items():
        claims = history.deliveries.get((name, sample_id), [])
        first = min((claim.start for claim in claims), default=float("inf"))
        last = claims[0].latest if claims else float("inf")
        acknowledged = min(puts, key=lambda put: put.end)
        if not lost_claims:  # one without an end may have taken any row
            surely.append(Interval(acknowledged.end, first, acknowledged.event))
        maybe.append(Interval(puts.by_start[0].start, last, puts.by_start[0].event))
    taking = [
        Interval(claim.start, claim.latest, claim)
        for claim in history.of("claim")
        if claim.task == name and claim.ok and claim.ids
    ]
    return TaskStatus(
        name,
        answers,
        IntervalIndex(surely),
        IntervalIndex(maybe),
        IntervalIndex(span for puts in history.puts.values() for span in puts),
        IntervalIndex(taking + lost_claims),
    )
