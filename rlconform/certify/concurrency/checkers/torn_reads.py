"""The verdict on torn rows: a reader sees one field of a put and not the others.

    a read that overlaps a put of several fields may give all from before it, or all of it

A put is one step for everybody: once anybody has seen a part of it, in a read or by a claim that
only this put can have made possible, every read that begins later must see all of it, also before
the put was acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.checkers.reads import refused_reads, values_read
from rlconform.certify.concurrency.events import Operation, Value
from rlconform.certify.concurrency.history import FIELD, History, Interval, IntervalIndex


def torn(history: History) -> Iterator[Anomaly]:
    """Torn rows: within one read, or against what another had seen before it began."""
    for read in history.of("get"):
        for sample_id, values in zip(read.ids, read.values, strict=False):
            yield from _torn_within(history, read, sample_id, values)
    sightings = FirstObservations(history)
    for read, sample_id, field, value in values_read(history):
        yield from _behind_another(history, sightings, read, sample_id, field, value)
    for read in refused_reads(history):
        yield from _hidden_from_another(history, sightings, read)


def _torn_within(
    history: History, read: Operation, sample_id: str, values: dict[str, Value]
) -> Iterator[Anomaly]:
    """Two fields from two puts, each of which wrote both: one put came after the other."""
    puts = {
        field: put.event
        for field, value in values.items()
        if (put := history.put_of(sample_id, field, value))
    }
    fields = sorted(puts)
    for one, other in pairwise(fields):
        first, second = puts[one], puts[other]
        if first is not second and other in first.fields and one in second.fields:
            said = (
                f"{read.who} read {sample_id!r} with {one!r} of v{first.version} and {other!r} of "
                f"v{second.version}, though either put wrote both"
            )
            yield anomaly("torn", sample_id, said, first, second, read)
            return


class FirstObservations:
    """When somebody first saw a part of each put, and in which event."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._first: dict[tuple[int, str], Operation] = {}
        for read, sample_id, field, value in values_read(history):
            self._note(history.put_of(sample_id, field, value), sample_id, read)
        for claim in history.of("claim"):
            for sample_id in claim.ids if claim.ok else ():
                for field in claim.fields:
                    self._note(_only_put(history, sample_id, field, claim), sample_id, claim)
        self.spans = cache(self._spans)

    def by(self, put: Interval, sample_id: str) -> Operation:
        """The event in which the row of the put was first seen; the put's own end, if none."""
        return self._first.get((id(put.event), sample_id), put.event)

    def _note(self, put: Interval | None, sample_id: str, seen: Operation) -> None:
        if put is None:
            return
        key = (id(put.event), sample_id)
        if key not in self._first or seen.latest < self._first[key].latest:
            self._first[key] = seen

    def _spans(self, sample_id: str, field: str) -> IntervalIndex:
        """The puts of a field, each over as soon as a part of it had been seen."""
        return IntervalIndex(
            Interval(put.start, min(put.end, self.by(put, sample_id).latest), put.event)
            for put in self._history.wrote(sample_id, (FIELD, field))
        )


def _only_put(history: History, sample_id: str, field: str, claim: Operation) -> Interval | None:
    """The put that made the row ready for the claim, if no other can have done it."""
    puts = history.wrote(sample_id, (FIELD, field))
    begun = puts.touching(0.0, claim.latest)
    return puts.by_start[0] if begun == 1 else None


def _behind_another(
    history: History,
    sightings: FirstObservations,
    read: Operation,
    sample_id: str,
    field: str,
    value: Value,
) -> Iterator[Anomaly]:
    """A field from before a put of which another had already seen a part."""
    put = history.put_of(sample_id, field, value)
    later = put and sightings.spans(sample_id, field).inside(put.end, read.start)
    if put and later and later.event.until >= read.start:
        by = sightings.by(later, sample_id)
        said = (
            f"{read.who} read {field!r} of {sample_id!r} as v{value}, after {by.who} had seen a "
            f"part of v{later.event.version}"
        )
        yield anomaly("torn", sample_id, said, put.event, later.event, by, read)


def _hidden_from_another(
    history: History, sightings: FirstObservations, read: Operation
) -> Iterator[Anomaly]:
    """A read that failed, though a part of each put that it asked for had been seen."""
    proofs: list[tuple[Interval, str]] = []
    for sample_id in read.ids:
        for field in read.fields:
            seen = sightings.spans(sample_id, field).over(read.start)
            if seen is None or history.clears_of(sample_id).touching(seen.start, read.latest):
                return
            proofs.append((seen, sample_id))
    under_way = [(put, sample_id) for put, sample_id in proofs if put.event.until >= read.start]
    if under_way:
        put, sample_id = under_way[0]
        by = sightings.by(put, sample_id)
        said = (
            f"{read.who} could not read {list(read.fields)} of {sample_id!r} ({read.error}), after "
            f"{by.who} had seen a part of the put that writes them"
        )
        yield anomaly("torn", sample_id, said, put.event, by, read)
