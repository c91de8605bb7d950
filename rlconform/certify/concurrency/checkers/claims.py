"""Verdicts on claims: null ids, phantoms, duplicates, rows that were lost or went to one task only.

a claim that overlaps                    may hand out the row   may come back without it
the put that makes the row ready                 yes                     yes
a clear of the row                               yes                     yes
another claim of the same task           one of them, not both           yes
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.events import Operation
from rlconform.certify.concurrency.history import FIELD, History, Interval


def null_ids(history: History) -> Iterator[Anomaly]:
    """Ids that came with a claim and are no text."""
    for claim in history.of("claim"):
        wrong = [i for i in claim.ids if not isinstance(i, str)]
        if wrong:
            said = f"a claim named {len(wrong)} of {len(claim.ids)} rows {wrong[0]!r}"
            yield anomaly("null-id", None, said, claim)


def phantoms(history: History) -> Iterator[Anomaly]:
    """Claimed rows that can't have been ready: never put, cleared before, a field not produced."""
    for claim in history.of("claim"):
        for sample_id in claim.ids if claim.ok else ():
            if not isinstance(sample_id, str):
                continue
            for field in claim.fields:
                if not history.possible(sample_id, (FIELD, field), claim):
                    yield _phantom(history, claim, sample_id, field)
                    break


def _phantom(history: History, claim: Operation, sample_id: str, field: str) -> Anomaly:
    put = history.wrote(sample_id, (FIELD, field)).begun(claim.latest)
    if put is None:
        known = history.puts.get(sample_id)
        what = f"field {field!r} of it was never put" if known else "nobody ever put it"
        said = f"{claim.task!r} was handed {sample_id!r}, though {what}"
        first = [known.by_start[0].event] if known else []
        return anomaly("phantom", sample_id, said, *first, claim)
    clear = history.cleared_between(sample_id, put.end, claim.start)
    assert clear is not None
    said = (
        f"{claim.task!r} was handed {sample_id!r}, though its clear had been over for "
        f"{_ms(claim.start - clear.end)} when the claim began"
    )
    return anomaly("phantom", sample_id, said, put.event, clear.event, claim)


def duplicated(history: History) -> Iterator[Anomaly]:
    """Rows that a task was handed again without a clear and a put in between.

    Between two deliveries of a row, from the earlier start to the later end, there is room for
    another life only if both a clear and a put of the row touch that time.
    """
    for (task, sample_id), claims in history.deliveries.items():
        if not isinstance(sample_id, str):
            continue
        for first, second in pairwise(claims):
            start = min(first.start, second.start)
            if first is not second and _reborn(history, sample_id, start, second.latest):
                continue
            said = (
                f"{task!r} was handed {sample_id!r} twice in one claim"
                if first is second
                else f"{task!r} was handed {sample_id!r} twice, to {first.who} and {second.who}, "
                f"without a clear and a put in between"
            )
            put = history.puts_of(sample_id).begun(first.latest)
            yield anomaly("duplicated", sample_id, said, *_events(put), first, second)


def _reborn(history: History, sample_id: str, start: float, end: float) -> bool:
    return bool(
        history.clears_of(sample_id).touching(start, end)
        and history.puts_of(sample_id).touching(start, end)
    )


def lost(history: History) -> Iterator[Anomaly]:
    """Rows that no task was handed, though a task asked until nothing was left."""
    for task, sample_id, put, last in _undelivered(history):
        if not _others(history, task, sample_id, put):
            said = (
                f"{sample_id!r} was never handed to {task!r}: it had been put for "
                f"{_ms(last.start - put.end)} when a last claim, which had room for more, began"
            )
            yield anomaly("lost", sample_id, said, put.event, last)


def cross_task(history: History) -> Iterator[Anomaly]:
    """Rows that one task was handed and another one never, though it asked until the end."""
    for task, sample_id, put, last in _undelivered(history):
        for other in _others(history, task, sample_id, put):
            said = (
                f"{sample_id!r} was handed to {other.task!r} and never to {task!r}, which asked "
                f"until nothing was left: tasks share what they should each have"
            )
            yield anomaly("cross-task", sample_id, said, put.event, other, last)
            break


def _others(history: History, task: str, sample_id: str, put: Interval) -> list[Operation]:
    """Deliveries of this life of the row to other tasks."""
    names = (name for name in history.tasks if name != task)
    claims = (history.deliveries.get((name, sample_id), []) for name in names)
    return [claim for each in claims for claim in each if claim.latest > put.start]


def _undelivered(history: History) -> Iterator[tuple[str, str, Interval, Operation]]:
    """Rows that must have been handed to a task by its last claim that had room, and were not.

    A claim without an end may have taken as many rows as it asked for: they are neither lost nor
    delivered.
    """
    for last in _last_claims_with_room(history):
        missing = [
            (last.task, sample_id, put, last)
            for sample_id in history.puts
            if (put := _sure(history, sample_id, last)) is not None
            and not _delivered(history, last.task, sample_id, put)
        ]
        excused = sum(
            claim.asked
            for claim in history.of("claim")
            if not claim.ok and claim.task == last.task and claim.start <= last.latest
        )
        if len(missing) > excused:
            yield from missing


def _last_claims_with_room(history: History) -> list[Operation]:
    last: dict[tuple[str, tuple[str, ...]], Operation] = {}
    for claim in history.of("claim"):
        if claim.ok and len(claim.ids) < claim.asked:
            last[claim.task, claim.fields] = claim
    return list(last.values())


def _sure(history: History, sample_id: str, claim: Operation) -> Interval | None:
    """The last of the puts that prove the row ready for the claim; None where it may not be."""
    proofs = [
        history.surely_there(sample_id, (FIELD, field), claim.start, claim.latest)
        for field in claim.fields
    ]
    if not proofs or None in proofs:
        return None
    return max((proof for proof in proofs if proof), key=lambda proof: proof.end)


def _delivered(history: History, task: str, sample_id: str, put: Interval) -> bool:
    """Whether this life of the row may have been handed to the task.

    The put may overwrite a row that was claimed long before: with no clear that lies wholly in
    between, that was the same life.
    """
    claims = history.deliveries.get((task, sample_id))
    if not claims:
        return False
    last = claims[-1]
    return last.latest >= put.start or not history.cleared_between(
        sample_id, last.latest, put.start
    )


def _events(span: Interval | None) -> list[Operation]:
    return [] if span is None else [span.event]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"
