"""Checkers of claims: ids that are no strings, rows not ready, duplicated rows and lost rows.

a claim that overlaps                    may return the row     may return without it
the put that makes the row ready                yes                     yes
a clear of the row                              yes                     yes
another claim of the same task           only one of the two            yes
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly, ms
from rlconform.certify.concurrency.history import FIELD, History, Interval
from rlconform.certify.concurrency.operation import Operation


def null_ids(history: History) -> Iterator[Anomaly]:
    """Find claims that returned ids that are no strings."""
    for claim in history.of("claim"):
        wrong = [i for i in claim.ids if not isinstance(i, str)]
        if wrong:
            text = (
                f"a claim returned {wrong[0]!r} as the id of {len(wrong)} of {len(claim.ids)} rows"
            )
            yield anomaly("null-id", None, text, claim)


def phantoms(history: History) -> Iterator[Anomaly]:
    """Find claimed rows that can't have been ready: never put, cleared, or without a field."""
    for claim in history.of("claim"):
        for sample_id in claim.ids if claim.ok else ():
            if not isinstance(sample_id, str):
                continue
            yield from islice(_phantom(history, claim, sample_id), 1)


def _phantom(history: History, claim: Operation, sample_id: str) -> Iterator[Anomaly]:
    """Yield an anomaly for each required field that the row can't have had during the claim."""
    for field in claim.fields:
        put = history.writes[sample_id, (FIELD, field)].begun(claim.latest)
        if put is None:
            known = history.puts.get(sample_id)
            why = f"its field {field!r} was never put" if known else "it was never put"
            text = f"{claim.task!r} claimed {sample_id!r}, though {why}"
            first = [known.by_start[0].operation] if known else []
            yield anomaly("phantom", sample_id, text, *first, claim)
        elif clear := history.clears[sample_id].inside(put.end, claim.start):
            text = (
                f"{claim.task!r} claimed {sample_id!r}, though it had been cleared "
                f"{ms(claim.start - clear.end)} before the claim began"
            )
            yield anomaly("phantom", sample_id, text, put.operation, clear.operation, claim)


def duplicated(history: History) -> Iterator[Anomaly]:
    """Find rows that a task claimed twice without a clear and a put in between.

    The second claim can have returned a new row of this id only if both a clear and a put of it may
    have taken effect between the earlier start and the later end of the two claims.
    """
    for (task, sample_id), claims in history.deliveries.items():
        if not isinstance(sample_id, str):
            continue
        for first, second in pairwise(claims):
            start = min(first.start, second.start)
            if first is not second and _reborn(history, sample_id, start, second.latest):
                continue
            text = (
                f"{task!r} claimed {sample_id!r} twice in one claim"
                if first is second
                else f"{task!r} claimed {sample_id!r} twice, by {first.who} and {second.who}, "
                f"without a clear and a put in between"
            )
            put = history.puts[sample_id].begun(first.latest)
            made_by = [put.operation] if put else []
            yield anomaly("duplicated", sample_id, text, *made_by, first, second)


def _reborn(history: History, sample_id: str, start: float, end: float) -> bool:
    return bool(
        history.clears[sample_id].touching(start, end)
        and history.puts[sample_id].touching(start, end)
    )


def lost(history: History) -> Iterator[Anomaly]:
    """Find rows that no task claimed, though a task claimed until no row was left."""
    for task, sample_id, put, last in _undelivered(history):
        if not _other_claims(history, task, sample_id, put):
            text = (
                f"{task!r} never claimed {sample_id!r}, put {ms(last.start - put.end)} before its "
                f"last claim, which returned fewer rows than it asked for"
            )
            yield anomaly("lost", sample_id, text, put.operation, last)


def cross_task(history: History) -> Iterator[Anomaly]:
    """Find rows that one task got and another did not, though it claimed until no row was left."""
    for task, sample_id, put, last in _undelivered(history):
        for other in _other_claims(history, task, sample_id, put):
            text = (
                f"{other.task!r} claimed {sample_id!r}, and {task!r} never did, though it claimed "
                f"until nothing was left: the tasks share rows that each should get"
            )
            yield anomaly("cross-task", sample_id, text, put.operation, other, last)
            break


def _other_claims(history: History, task: str, sample_id: str, put: Interval) -> list[Operation]:
    """Return the claims by other tasks that returned the row after this put."""
    names = (name for name in history.tasks if name != task)
    claims = (history.deliveries.get((name, sample_id), []) for name in names)
    return [claim for each in claims for claim in each if claim.latest > put.start]


def _undelivered(history: History) -> Iterator[tuple[str, str, Interval, Operation]]:
    """Yield rows that a task never claimed, though its last partly filled claim had room for them.

    A claim that failed or never returned may have taken all rows that it asked for, so rows are
    yielded only if more are missing than such claims can have taken.
    """
    for last in _last_claims_not_full(history):
        missing = [
            (last.task, sample_id, put, last)
            for sample_id in history.puts
            if (put := history.all_surely_there([sample_id], last)) is not None
            and not _delivered(history, last.task, sample_id, put)
        ]
        excused = sum(
            claim.asked
            for claim in history.of("claim")
            if not claim.ok and claim.task == last.task and claim.start <= last.latest
        )
        if len(missing) > excused:
            yield from missing


def _last_claims_not_full(history: History) -> list[Operation]:
    last: dict[tuple[str, tuple[str, ...]], Operation] = {}
    for claim in history.of("claim"):
        if claim.ok and len(claim.ids) < claim.asked:
            last[claim.task, claim.fields] = claim
    return list(last.values())


def _delivered(history: History, task: str, sample_id: str, put: Interval) -> bool:
    """Whether the task may have claimed the row that this put wrote.

    The put may overwrite a row that was claimed long before; unless a clear ran wholly between
    the claim and the put, both concern the same row.
    """
    claims = history.deliveries.get((task, sample_id))
    if not claims:
        return False
    last = claims[-1]
    return last.latest >= put.start or not history.clears[sample_id].inside(last.latest, put.start)
