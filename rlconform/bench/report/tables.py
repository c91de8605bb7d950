"""Builds the tables of a bench document as text, which the terminal and the page show.

Entries name targets by spec; ``pivot`` replaces specs by the targets' labels and sorts the rows by
shape and target.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from operator import attrgetter

from rlconform.bench.document import BenchDocument
from rlconform.bench.report import ratios
from rlconform.bench.report.pivot import (
    Entry,
    PivotCell,
    PivotTable,
    cell_or_gap,
    latency_cell,
    pivot,
    rate_cell,
    ratio_cell,
    seconds_cell,
    throughput_cell,
)

#: Operations that carry a batch's bytes, so that bytes per second make sense.
CARRYING = ("put", "get", "get_in_order")

#: Operations whose comparison is shown first.
HEADLINES = ("put", "get")

#: The column of the wake table that is never negative.
FROM_START = "from the put's start"

#: The labels of copies into memory already touched, and into memory just allocated.
COPIES = ("one copy into touched memory", "one copy into fresh memory")

_SHAPE_AND_TARGET = ("Shape", "Target")


def ratio_tables(document: BenchDocument) -> list[PivotTable]:
    """Return tables of cost in copies, comparison, growth and scaling, without empty tables."""
    operations = dict.fromkeys(row.operation for row in document.operations)
    compared = [_comparison(document, operation) for operation in operations]
    found = [_costs(document), *compared, _growth_ratios(document), _scaling(document)]
    return [table for table in found if table.rows]


def absolute_tables(document: BenchDocument) -> list[PivotTable]:
    """Return tables of wake, throughput, latency, claim rate and growth, without empty tables."""
    makers = (_wake, _throughput, _latency, _claim_rate, _growth)
    return [table for table in (make(document) for make in makers) if table.rows]


def gaps(document: BenchDocument) -> PivotTable:
    """Return a table of missing figures and why: failed targets, then refusals (equal: once)."""
    equal: dict[tuple[str, str, str], list[str]] = {}
    for target, where, what, reason in _missing(document):
        if reason:
            equal.setdefault((target, where, reason), []).append(what)
    name = _names(document)
    entries = [
        Entry(
            (name[target], f"{', '.join(what)} {where}".strip()),
            "Reason",
            PivotCell(reason, kind="prose"),
        )
        for (target, where, reason), what in equal.items()
    ]
    caption = "Where a figure is missing, this is what the plane or its process reported."
    return pivot("gaps", "Not measured", caption, ("Target", "What"), entries)


def _missing(document: BenchDocument) -> Iterator[tuple[str, str, str, str]]:
    for lost in document.targets:
        yield lost.spec, "", "the target", lost.reason if lost.status == "failed" else ""
    for times in document.operations:
        yield times.target, f"on {times.shape}", times.operation, times.refused
    for rate in document.claim_rate:
        yield rate.target, "claiming at once", _consumers(rate.consumers), rate.refused
    for growth in document.growth:
        where = f"beside {_rows(growth.rows_in_partition)}"
        yield growth.target, where, growth.operation, growth.refused
    for wake in document.wake:
        yield wake.target, "", "wake", wake.refused


def _names(document: BenchDocument) -> dict[str, str]:
    """Return the texts that tables show for shapes and targets, in the document's order."""
    shapes = {shape.name: shape.name for shape in document.shapes}
    return shapes | {target.spec: target.label for target in document.targets}


def _costs(document: BenchDocument) -> PivotTable:
    found = ratios.against_memcpy(document)
    entries = []
    for row in document.operations:
        ratio = found.get((row.target, row.shape, row.operation))
        cell = cell_or_gap(ratio_cell, ratio, row.refused)
        entries.append(Entry((row.shape, row.target), row.operation, cell))
    caption = (
        "Time of one operation on a whole batch over the time of one copy of as many bytes; lower "
        "is better. Claim and clear carry no batch: their ratio shows what they cost beside it."
    )
    title, names = "Cost in copies of memory", _names(document)
    return pivot("costs", title, caption, _SHAPE_AND_TARGET, entries, names)


def _comparison(document: BenchDocument, operation: str) -> PivotTable:
    found = {
        (target, other, shape): ratio
        for (target, other, shape, of), ratio in ratios.between_targets(document).items()
        if of == operation
    }
    faster = {(shape, target) for (target, _, shape), ratio in found.items() if ratio.value >= 1}
    entries = [Entry(row, row[1], PivotCell("")) for row in faster]
    for (target, other, shape), ratio in found.items():
        if (shape, target) in faster:
            cell = ratio_cell(ratio) if ratio.value >= 1 else PivotCell("")
            entries.append(Entry((shape, target), other, cell))
    compared = {target for target, _, _ in found}
    return pivot(
        f"{operation}_compared",
        f"{operation}: target against target",
        "How many times as fast the row's target is as the column's, where it is the faster of the "
        "two.",
        _SHAPE_AND_TARGET,
        entries,
        _names(document),
        columns=[target.spec for target in document.targets if target.spec in compared],
        minor=operation not in HEADLINES,
    )


def _growth_ratios(document: BenchDocument) -> PivotTable:
    entries = [
        Entry((target, f"{fewest:,} to {most:,}"), operation, ratio_cell(ratio))
        for (target, operation, fewest, most), ratio in ratios.growth_ratios(document).items()
    ]
    caption = (
        "Time of an operation on a few rows in the fullest partition over the same in the "
        "emptiest; at 1, the other rows of a partition cost nothing."
    )
    labels = ("Target", "Rows in the partition")
    return pivot("growth_ratios", "Growth", caption, labels, entries, _names(document))


def _scaling(document: BenchDocument) -> PivotTable:
    entries = [
        Entry((target,), _consumers(consumers), ratio_cell(ratio))
        for (target, consumers), ratio in ratios.scaling_ratios(document).items()
    ]
    caption = "Rows per second that several consumers claim, over those of one; higher is better."
    return pivot("scaling", "Scaling of claims", caption, ("Target",), entries, _names(document))


def _wake(document: BenchDocument) -> PivotTable:
    entries = [
        Entry((row.target,), column, cell_or_gap(latency_cell, seconds, row.refused))
        for row in document.wake
        for column, seconds in (
            (FROM_START, row.from_start),
            ("from its return", row.from_return),
        )
    ]
    caption = (
        "A consumer is blocked in a claim, a producer puts the row: time until the claim returns. "
        "From the put's return it is negative where the claim returned first."
    )
    return pivot("wake", "Waking a blocked claim", caption, ("Target",), entries, _names(document))


def _throughput(document: BenchDocument) -> PivotTable:
    carried = [row for row in document.operations if row.operation in CARRYING]
    sizes = {shape.name: shape.bytes for shape in document.shapes}
    entries = [
        Entry((copy.shape, label), operation, throughput_cell(sizes[copy.shape], seconds))
        for copy in document.memcpy
        for label, seconds in zip(COPIES, (copy.warm, copy.fresh), strict=True)
        for operation in dict.fromkeys(row.operation for row in carried)
    ]
    for row in carried:
        cell = cell_or_gap(partial(throughput_cell, row.bytes), row.seconds, row.refused)
        entries.append(Entry((row.shape, row.target), row.operation, cell))
    caption = "Bytes of the batch per second, median and quartiles; 1 MB is a million bytes."
    return pivot("throughput", "Throughput", caption, _SHAPE_AND_TARGET, entries, _names(document))


def _latency(document: BenchDocument) -> PivotTable:
    entries = [
        Entry((r.shape, r.target), r.operation, cell_or_gap(latency_cell, r.seconds, r.refused))
        for r in document.operations
    ]
    counts = [row.seconds.n for row in document.operations if row.seconds]
    caption = "Time of one call on the whole batch, median and p99"
    if counts:
        caption += f", of {min(counts)} to {max(counts)} repetitions"
    if min(counts, default=100) < 100:
        caption += "; the p99 of fewer than 100 is close to the slowest of them"
    return pivot("latency", "Latency", f"{caption}.", _SHAPE_AND_TARGET, entries, _names(document))


def _claim_rate(document: BenchDocument) -> PivotTable:
    entries = [
        Entry(
            (row.target,),
            _consumers(row.consumers),
            cell_or_gap(rate_cell, row.rows_per_second, row.refused),
        )
        for row in sorted(document.claim_rate, key=attrgetter("consumers"))
    ]
    caption = (
        f"Rows per second that all consumers together claim while they drain "
        f"{_either(row.rows for row in document.claim_rate)} ready rows; each row was claimed "
        f"exactly once."
    )
    return pivot("claim_rate", "Claim rate", caption, ("Target",), entries, _names(document))


def _growth(document: BenchDocument) -> PivotTable:
    entries = [
        Entry(
            (row.target, row.operation),
            _rows(row.rows_in_partition),
            cell_or_gap(seconds_cell, row.seconds, row.refused),
        )
        for row in sorted(document.growth, key=attrgetter("rows_in_partition"))
    ]
    batch = _either(row.batch for row in document.growth)
    caption = f"Time of one operation on {batch} rows while the partition holds as many as named."
    labels = ("Target", "Operation")
    return pivot("growth", "Growth in seconds", caption, labels, entries, _names(document))


def _consumers(count: int) -> str:
    return "1 consumer" if count == 1 else f"{count} consumers"


def _rows(count: int) -> str:
    return f"{count:,} rows"


def _either(counts: Iterable[int]) -> str:
    return " or ".join(f"{count:,}" for count in sorted(set(counts)))
