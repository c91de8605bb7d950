"""The tables of a bench document, as text; the terminal and the page show the same ones."""

from __future__ import annotations

from collections.abc import Iterable

from rlconform.bench.document import BenchDocument, TargetResult
from rlconform.bench.report import ratios
from rlconform.bench.report.pivot import (
    Entry,
    PivotCell,
    PivotTable,
    cell_or_gap,
    gap_cell,
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

#: Follows the name of a target that was measured within one process.
MARK = "\N{DAGGER}"


def ratio_tables(document: BenchDocument) -> list[PivotTable]:
    """Cost in copies of memory, comparison of targets, growth, scaling; without empty ones."""
    operations = dict.fromkeys(row.operation for row in document.operations)
    found = [
        _costs(document),
        *(_comparison(document, operation) for operation in operations),
        _growth_ratios(document),
        _scaling(document),
    ]
    return [table for table in found if table.rows]


def absolute_tables(document: BenchDocument) -> list[PivotTable]:
    """Wake, throughput, latency, claim rate, growth in their own units; without empty ones."""
    make = (_wake, _throughput, _latency, _claim_rate, _growth)
    return [table for table in (make_one(document) for make_one in make) if table.rows]


def gaps(document: BenchDocument) -> PivotTable:
    """What has no figure, and why: failed targets first, then refusals, equal ones together."""
    missing = [
        *((t.spec, "", "the target", t.reason) for t in document.targets if t.status == "failed"),
        *((r.target, f"on {r.shape}", r.operation, r.refused) for r in document.operations),
        *(
            (r.target, "claiming at once", _consumers(r.consumers), r.refused)
            for r in document.claim_rate
        ),
        *(
            (r.target, f"beside {_rows(r.rows_in_partition)}", r.operation, r.refused)
            for r in document.growth
        ),
        *((r.target, "", "wake", r.refused) for r in document.wake),
    ]
    equal: dict[tuple[str, str, str], list[str]] = {}
    for target, where, what, reason in missing:
        if reason:
            equal.setdefault((target, where, reason), []).append(what)
    name = names(document)
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


def in_one_process(target: TargetResult) -> bool:
    """Whether all clients were in one process; False for a target that never opened."""
    return bool(target.name) and not target.processes


def names(document: BenchDocument) -> dict[str, str]:
    """By spec: the target's name in tables and plots, marked if measured in one process."""
    return {t.spec: f"{t.spec} {MARK}" if in_one_process(t) else t.spec for t in document.targets}


def _costs(document: BenchDocument) -> PivotTable:
    found = ratios.against_memcpy(document)
    name = names(document)
    entries = [
        Entry(
            (row.shape, name[row.target]),
            row.operation,
            ratio_cell(ratio)
            if (ratio := found.get((row.target, row.shape, row.operation)))
            else gap_cell(row.refused),
        )
        for row in document.operations
    ]
    caption = (
        "Time of one operation on a whole batch over the time of one copy of as many bytes; lower "
        "is better. Claim and clear carry no batch: their ratio shows what they cost beside it."
    )
    title, labels = "Cost in copies of memory", ("Shape", "Target")
    return pivot("costs", title, caption, labels, entries, order=_order(document))


def _comparison(document: BenchDocument, operation: str) -> PivotTable:
    found = {
        (target, other, shape): ratio
        for (target, other, shape, of), ratio in ratios.between_targets(document).items()
        if of == operation
    }
    faster = {(target, shape) for (target, _, shape), ratio in found.items() if ratio.value >= 1}
    name = names(document)
    entries = []
    for (target, other, shape), ratio in found.items():
        if (target, shape) in faster:
            labels = (shape, name[target])
            cell = ratio_cell(ratio) if ratio.value >= 1 else PivotCell("")
            entries.append(Entry(labels, name[other], cell))
            entries.append(Entry(labels, name[target], PivotCell("")))
    compared = {target for target, _, _ in found}
    return pivot(
        f"{operation}_compared",
        f"{operation}: target against target",
        "How many times as fast the row's target is as the column's, where it is the faster of the "
        "two.",
        ("Shape", "Target"),
        entries,
        order=_order(document),
        columns=[name[t.spec] for t in document.targets if t.spec in compared],
        minor=operation not in HEADLINES,
    )


def _growth_ratios(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry((name[target], f"{fewest:,} to {most:,}"), operation, ratio_cell(ratio))
        for (target, operation, fewest, most), ratio in ratios.growth_ratios(document).items()
    ]
    caption = (
        "Time of an operation on a few rows in the fullest partition over the same in the "
        "emptiest; at 1, the other rows of a partition cost nothing."
    )
    labels = ("Target", "Rows in the partition")
    return pivot("growth_ratios", "Growth", caption, labels, entries, order=_order(document))


def _scaling(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry((name[target],), _consumers(consumers), ratio_cell(ratio))
        for (target, consumers), ratio in ratios.scaling_ratios(document).items()
    ]
    caption = (
        "Rows per second that several consumers claim, over those that one claims; higher is "
        "better."
    )
    title = "Scaling of claims"
    return pivot("scaling", title, caption, ("Target",), entries, order=_order(document))


def _wake(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry((name[row.target],), column, cell_or_gap(latency_cell, seconds, row.refused))
        for row in document.wake
        for column, seconds in (
            ("from the put's start", row.from_start),
            ("from its return", row.from_return),
        )
    ]
    caption = (
        "A consumer is blocked in a claim, a producer puts the row: time until the claim returns. "
        "From the put's return it is negative where the claim returned first."
    )
    title = "Waking a blocked claim"
    return pivot("wake", title, caption, ("Target",), entries, order=_order(document))


def _throughput(document: BenchDocument) -> PivotTable:
    carried = [row for row in document.operations if row.operation in CARRYING]
    sizes = {shape.name: shape.bytes for shape in document.shapes}
    name = names(document)
    entries = [
        Entry(
            (copy.shape, f"one copy into {memory} memory"),
            operation,
            throughput_cell(sizes[copy.shape], seconds),
        )
        for copy in document.memcpy
        for memory, seconds in (("touched", copy.warm), ("fresh", copy.fresh))
        for operation in dict.fromkeys(row.operation for row in carried)
    ]
    entries += [
        Entry(
            (row.shape, name[row.target]),
            row.operation,
            throughput_cell(row.bytes, row.seconds) if row.seconds else gap_cell(row.refused),
        )
        for row in carried
    ]
    caption = "Bytes of the batch per second, median and quartiles; 1 MB is a million bytes."
    title, labels = "Throughput", ("Shape", "Target")
    return pivot("throughput", title, caption, labels, entries, order=_order(document))


def _latency(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (row.shape, name[row.target]),
            row.operation,
            cell_or_gap(latency_cell, row.seconds, row.refused),
        )
        for row in document.operations
    ]
    counts = [row.seconds.n for row in document.operations if row.seconds]
    caption = "Time of one call on the whole batch, median and p99"
    if counts:
        caption += f", of {min(counts)} to {max(counts)} repetitions"
    if min(counts, default=100) < 100:
        caption += "; the p99 of fewer than 100 is close to the slowest of them"
    labels = ("Shape", "Target")
    return pivot("latency", "Latency", f"{caption}.", labels, entries, order=_order(document))


def _claim_rate(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (name[row.target],),
            _consumers(row.consumers),
            cell_or_gap(rate_cell, row.rows_per_second, row.refused),
        )
        for row in document.claim_rate
    ]
    ready = _either(row.rows for row in document.claim_rate)
    caption = (
        f"Rows per second that all consumers together claim while they drain {ready} ready rows; "
        f"each row was claimed exactly once."
    )
    counts = sorted({row.consumers for row in document.claim_rate})
    return pivot(
        "claim_rate", "Claim rate", caption, ("Target",), entries,
        order=_order(document), columns=map(_consumers, counts),
    )  # fmt: skip


def _growth(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (name[row.target], row.operation),
            _rows(row.rows_in_partition),
            cell_or_gap(seconds_cell, row.seconds, row.refused),
        )
        for row in document.growth
    ]
    batch = _either(row.batch for row in document.growth)
    caption = f"Time of one operation on {batch} rows while the partition holds as many as named."
    counts = sorted({row.rows_in_partition for row in document.growth})
    return pivot(
        "growth", "Growth in seconds", caption, ("Target", "Operation"), entries,
        order=_order(document), columns=map(_rows, counts),
    )  # fmt: skip


def _order(document: BenchDocument) -> list[str]:
    """Labels in the order of rows: by shape, then by target."""
    return [*(shape.name for shape in document.shapes), *names(document).values()]


def _consumers(count: int) -> str:
    return "1 consumer" if count == 1 else f"{count} consumers"


def _rows(count: int) -> str:
    return f"{count:,} rows"


def _either(counts: Iterable[int]) -> str:
    return " or ".join(f"{count:,}" for count in sorted(set(counts)))
