"""Checkers of reads: wrong rows, values that were never put, outdated values and missing rows.

    a read that overlaps             may give
    a put of the row                 the value before it or the value that it writes
    a clear of the row               the row or an error

A read of rows that surely existed may not fail. GET-04 to GET-06 judge which error a read of an
absent row raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlconform.certify.concurrency.anomaly import Anomaly, anomaly, ms
from rlconform.certify.concurrency.history import FIELD, History, Interval
from rlconform.certify.concurrency.operation import Operation, Value


def wrong_rows(history: History) -> Iterator[Anomaly]:
    """Find reads that returned another row's bytes, or bytes that no put wrote."""
    for read, sample_id, field, value in values_read(history):
        if isinstance(value, str):
            text = f"{read.who} asked for {field!r} of {sample_id!r} and got {value}"
            yield anomaly("wrong-row", sample_id, text, *_source(history, value), read)


def _source(history: History, value: str) -> list[Operation]:
    """Return a list of the put that wrote what was read, empty if ``value`` names no version."""
    version = re.search(r".* v(\d+)( |$)", value)
    return [put for put in history.of("put") if version and put.version == int(version[1])][:1]


def unwritten(history: History) -> Iterator[Anomaly]:
    """Find reads that returned a version of the row which no put had begun to write."""
    for read, sample_id, field, value in values_read(history):
        if isinstance(value, int):
            put = history.put_of(sample_id, field, value)
            if put is None or put.start > read.latest:
                text = (
                    f"{read.who} read {field!r} of {sample_id!r} as v{value}, which was never put"
                )
                yield anomaly("phantom", sample_id, text, read)


def stale_reads(history: History) -> Iterator[Anomaly]:
    """Find reads that returned replaced or cleared values, or raised though the rows existed."""
    for read, sample_id, field, value in values_read(history):
        put = history.put_of(sample_id, field, value)
        after = put and _superseded(history, sample_id, field, put.end, read.start)
        if put and after:
            newer = f"v{after.operation.version}" if after.operation.op == "put" else "its clear"
            text = (
                f"{read.who} read {field!r} of {sample_id!r} as v{value}, though {newer} had "
                f"returned {ms(read.start - after.end)} before the read began"
            )
            yield anomaly("stale-read", sample_id, text, put.operation, after.operation, read)
    for read in refused_reads(history):
        proof = history.all_surely_there(read.ids, read)
        if proof is not None:
            text = (
                f"{read.who} could not read {read.fields} of {read.ids[0]!r} ({read.error}), "
                f"though its put had returned {ms(read.start - proof.end)} before the read began"
            )
            yield anomaly("stale-read", read.ids[0], text, proof.operation, read)


def refused_reads(history: History) -> Iterator[Operation]:
    """Yield the reads that raised, except reads of no row."""
    return (read for read in history.of("get") if read.error and read.ids)


def values_read(history: History) -> Iterator[tuple[Operation, str, str, Value]]:
    """Yield every value that was read, after the read, the row and the field."""
    for read in history.of("get"):
        for sample_id, values in zip(read.ids, read.values, strict=False):
            for field, value in values.items():
                yield read, sample_id, field, value


def _superseded(
    history: History, sample_id: str, field: str, after: float, before: float
) -> Interval | None:
    """Return a put or clear that ran wholly between the value's put and the read, or None."""
    put = history.writes[sample_id, (FIELD, field)].inside(after, before)
    return put or history.clears[sample_id].inside(after, before)
