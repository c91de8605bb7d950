"""Checker of torn reads: a reader sees one field of a put and not the others.

A read that overlaps a put of several fields may return all of them from before the put, or all that
the put wrote. Once any caller has seen a part of a put, in a read or by a claim that only this put
can have made possible, every read that begins later must see all of it, even before the put
returns.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly
from rlconform.certify.concurrency.checkers.reads import refused_reads, values_read
from rlconform.certify.concurrency.history import FIELD, History, Interval, IntervalIndex
from rlconform.certify.concurrency.operation import Operation, Value


def torn(history: History) -> Iterator[Anomaly]:
    """Find reads that mix two puts, or miss a put of which a caller had already seen a part."""
    for read in history.of("get"):
        for sample_id, values in zip(read.ids, read.values, strict=False):
            yield from _torn_within(history, read, sample_id, values)
    observations = FirstObservations(history)
    for read, sample_id, field, value in values_read(history):
        yield from observations.older(read, sample_id, field, value)
    for read in refused_reads(history):
        yield from observations.refused(read)


def _torn_within(
    history: History, read: Operation, sample_id: str, values: dict[str, Value]
) -> Iterator[Anomaly]:
    """Find two fields of one read that come from two puts, though each put wrote both fields."""
    puts = {
        field: put.operation
        for field, value in values.items()
        if (put := history.put_of(sample_id, field, value))
    }
    fields = sorted(puts)
    for one, other in pairwise(fields):
        first, second = puts[one], puts[other]
        if first is not second and other in first.fields and one in second.fields:
            text = (
                f"{read.who} read {sample_id!r} with {one!r} of v{first.version} and {other!r} of "
                f"v{second.version}, though each put wrote both"
            )
            yield anomaly("torn", sample_id, text, first, second, read)
            return


class FirstObservations:
    """The operation in which a caller first saw a part of each put."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._first: dict[tuple[int, str], Operation] = {}
        for read, sample_id, field, value in values_read(history):
            self._note(history.put_of(sample_id, field, value), sample_id, read)
        for claim in history.of("claim"):
            for sample_id in claim.ids if claim.ok else ():
                for field in claim.fields:
                    self._note(_only_put(history, sample_id, field, claim), sample_id, claim)
        self._intervals = cache(self._seen_puts)

    def older(self, read: Operation, sample_id: str, field: str, value: Value) -> Iterator[Anomaly]:
        """Find a value from before a put, read after another caller had seen a part of the put."""
        put = self._history.put_of(sample_id, field, value)
        later = put and self._intervals(sample_id, field).inside(put.end, read.start)
        if put and later and later.operation.until >= read.start:
            by = self._by(later, sample_id)
            text = (
                f"{read.who} read {field!r} of {sample_id!r} as v{value}, after {by.who} had seen "
                f"a part of v{later.operation.version}"
            )
            yield anomaly("torn", sample_id, text, put.operation, later.operation, by, read)

    def refused(self, read: Operation) -> Iterator[Anomaly]:
        """Find a read that failed, though callers had seen a part of each put that it needs."""
        proofs: list[tuple[Interval, str]] = []
        for sample_id in read.ids:
            for field in read.fields:
                seen = self._intervals(sample_id, field).over(read.start)
                if not seen or self._history.clears[sample_id].touching(seen.start, read.latest):
                    return
                proofs.append((seen, sample_id))
        for put, sample_id in proofs:
            if put.operation.until >= read.start:  # it was under way
                by = self._by(put, sample_id)
                text = (
                    f"{read.who} could not read {list(read.fields)} of {sample_id!r} "
                    f"({read.error}), after {by.who} had seen a part of the put that writes them"
                )
                yield anomaly("torn", sample_id, text, put.operation, by, read)
                return

    def _by(self, put: Interval, sample_id: str) -> Operation:
        """Return the operation that first saw the put's row, or the put if no operation did."""
        return self._first.get((id(put.operation), sample_id), put.operation)

    def _note(self, put: Interval | None, sample_id: str, seen: Operation) -> None:
        if put is None:
            return
        key = (id(put.operation), sample_id)
        if key not in self._first or seen.latest < self._first[key].latest:
            self._first[key] = seen

    def _seen_puts(self, sample_id: str, field: str) -> IntervalIndex:
        """Return the puts of a field as intervals that end once a caller has seen a part.

        A put that raised and that nobody saw has no end: it may never take effect.
        """
        return IntervalIndex(
            Interval(put.start, self._seen_at(put, sample_id), put.operation)
            for put in self._history.writes[sample_id, (FIELD, field)]
        )

    def _seen_at(self, put: Interval, sample_id: str) -> float:
        seen = self._first.get((id(put.operation), sample_id))
        return put.end if seen is None else min(put.end, seen.latest)


def _only_put(history: History, sample_id: str, field: str, claim: Operation) -> Interval | None:
    """Return the put that made the row ready for the claim, or None if several may have."""
    puts = history.writes[sample_id, (FIELD, field)]
    begun = puts.touching(0.0, claim.latest)
    return puts.by_start[0] if begun == 1 else None
