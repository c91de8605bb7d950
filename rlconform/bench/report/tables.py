"""The tables of a bench document, as text: the terminal and the page show the same ones.

Ratios come first wherever they are shown, figures in their own units after them.
"""

from __future__ import annotations

from rlconform.bench.document import BenchDocument, TargetResult
from rlconform.bench.report import ratios
from rlconform.bench.report.pivot import (
    Entry,
    PivotCell,
    PivotTable,
    by_shape,
    by_target,
    gap_cell,
    latency_cell,
    pivot,
    rate_cell,
    ratio_cell,
    seconds_cell,
    throughput_cell,
)

#: Operations that carry a batch's bytes, so that bytes per second say something.
CARRYING = ("put", "get", "get_in_order")

#: Operations whose comparison is shown first.
HEADLINES = ("put", "get")

#: Follows the name of a target that was measured within one process.
MARK = "\N{DAGGER}"


def ratio_tables(document: BenchDocument) -> list[PivotTable]:
    """Cost in copies of memory, target beside target, growth, scaling; empty ones left out."""
    operations = dict.fromkeys(row.operation for row in document.operations)
    found = [
        _costs(document),
        *(_comparison(document, operation) for operation in operations),
        _growth_ratios(document),
        _scaling(document),
    ]
    return [table for table in found if table.rows]


def absolute_tables(document: BenchDocument) -> list[PivotTable]:
    """Wake, throughput, latency, claim rate, growth in their own units; empty ones left out."""
    found = [
        _wake(document),
        _throughput(document),
        _latency(document),
        _claim_rate(document),
        _growth(document),
    ]
    return [table for table in found if table.rows]


def gaps(document: BenchDocument) -> PivotTable:
    """What has no figure, and why: failed targets first, then refusals, those alike together."""
    told = [
        *((t.spec, "", "the target", t.reason) for t in document.targets if t.status == "failed"),
        *((r.target, f"on {r.shape}", r.operation, r.refused) for r in document.operations),
        *(
            (r.target, "claiming at once", _consumers(r.consumers), r.refused)
            for r in document.claim_rate
        ),
        *(
            (r.target, f"beside {r.rows_in_partition:,} rows", r.operation, r.refused)
            for r in document.growth
        ),
        *((r.target, "", "wake", r.refused) for r in document.wake),
    ]
    alike: dict[tuple[str, str, str], list[str]] = {}
    for target, where, what, reason in told:
        if reason:
            alike.setdefault((target, where, reason), []).append(what)
    name = names(document)
    entries = [
        Entry(
            (name[target], f"{', '.join(what)} {where}".strip()),
            "Reason",
            PivotCell(reason, kind="prose"),
            target,
        )
        for (target, where, reason), what in alike.items()
    ]
    caption = "Where a figure is missing, this is what the plane or its process said."
    return pivot("gaps", "Not measured", caption, ("Target", "What"), entries)


def in_one_process(target: TargetResult) -> bool:
    """Whether it was held in one process; of one that never opened nothing is known."""
    return bool(target.name) and not target.processes


def names(document: BenchDocument) -> dict[str, str]:
    """By spec: how tables and plots call a target, marked where it was held in one process."""
    return {t.spec: f"{t.spec} {MARK}" if in_one_process(t) else t.spec for t in document.targets}


def _costs(document: BenchDocument) -> PivotTable:
    found = {(r.target, r.shape, r.operation): r.ratio for r in ratios.against_memcpy(document)}
    name = names(document)
    entries = [
        Entry(
            (row.shape, name[row.target]),
            row.operation,
            ratio_cell(ratio)
            if (ratio := found.get((row.target, row.shape, row.operation)))
            else gap_cell(row.refused),
            row.target,
        )
        for row in by_shape(document, document.operations)
    ]
    caption = (
        "Time of one operation on a whole batch over the time of one copy of as many bytes; lower "
        "is better. Claim and clear carry no batch: theirs tells how they weigh beside the copy."
    )
    return pivot("costs", "Cost in copies of memory", caption, ("Shape", "Target"), entries)


def _comparison(document: BenchDocument, operation: str) -> PivotTable:
    found = [row for row in ratios.between_targets(document) if row.operation == operation]
    met = {row.target for row in found}
    name = names(document)
    faster = {(row.shape, row.target) for row in found if row.ratio.value >= 1}
    entries = []
    for row in by_shape(document, found):
        if (row.shape, row.target) in faster:
            labels = (row.shape, name[row.target])
            cell = ratio_cell(row.ratio) if row.ratio.value >= 1 else PivotCell("")
            entries.append(Entry(labels, name[row.other], cell, row.target))
            entries.append(Entry(labels, name[row.target], PivotCell(""), row.target))
    return pivot(
        f"{operation}_compared",
        f"{operation}: target against target",
        "How many times as fast the row's target is as the column's, where it is the faster of the "
        "two.",
        ("Shape", "Target"),
        entries,
        columns=tuple(name[t.spec] for t in document.targets if t.spec in met),
        minor=operation not in HEADLINES,
    )


def _growth_ratios(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (name[row.target], f"{row.fewest_rows:,} to {row.most_rows:,}"),
            row.operation,
            ratio_cell(row.ratio),
            row.target,
        )
        for row in by_target(document, ratios.growth_ratios(document))
    ]
    caption = (
        "Time of an operation on a few rows in the fullest partition over the same in the "
        "emptiest; at 1, what else a partition holds costs nothing."
    )
    return pivot("growth_ratios", "Growth", caption, ("Target", "Rows in the partition"), entries)


def _scaling(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry((name[row.target],), _consumers(row.consumers), ratio_cell(row.ratio), row.target)
        for row in by_target(document, ratios.scaling_ratios(document))
    ]
    caption = (
        "Rows per second that several consumers claim, over what one claims; higher is better."
    )
    return pivot("scaling", "Scaling of claims", caption, ("Target",), entries)


def _wake(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (name[row.target],),
            column,
            latency_cell(seconds) if seconds else gap_cell(row.refused),
            row.target,
        )
        for row in by_target(document, document.wake)
        for column, seconds in (
            ("from the put's start", row.from_start),
            ("from its return", row.from_return),
        )
    ]
    caption = (
        "A consumer is blocked in a claim, a producer puts the row: time until the claim returns. "
        "From the put's return it is negative where the consumer came back first."
    )
    return pivot("wake", "Waking a blocked claim", caption, ("Target",), entries)


def _throughput(document: BenchDocument) -> PivotTable:
    carried = [row for row in document.operations if row.operation in CARRYING]
    operations = dict.fromkeys(row.operation for row in carried)
    copies = {copy.shape: copy for copy in document.memcpy}
    name = names(document)
    entries = []
    for shape in document.shapes:
        if copy := copies.get(shape.name):
            for memory, seconds in (("touched", copy.warm), ("fresh", copy.fresh)):
                cell = throughput_cell(shape.bytes, seconds)
                labels = (shape.name, f"one copy into {memory} memory")
                entries += [Entry(labels, operation, cell) for operation in operations]
        entries += [
            Entry(
                (row.shape, name[row.target]),
                row.operation,
                throughput_cell(row.bytes, row.seconds) if row.seconds else gap_cell(row.refused),
                row.target,
            )
            for row in by_target(document, carried)
            if row.shape == shape.name
        ]
    caption = "Bytes of the batch per second, median and quartiles; 1 MB is a million bytes."
    return pivot("throughput", "Throughput", caption, ("Shape", "Target"), entries)


def _latency(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (row.shape, name[row.target]),
            row.operation,
            latency_cell(row.seconds) if row.seconds else gap_cell(row.refused),
            row.target,
        )
        for row in by_shape(document, document.operations)
    ]
    counts = [row.seconds.n for row in document.operations if row.seconds]
    caption = "Time of one call on the whole batch, median and p99"
    if counts:
        caption += f", of {min(counts)} to {max(counts)} repetitions"
    if min(counts, default=100) < 100:
        caption += "; the p99 of fewer than 100 is close to the slowest of them"
    return pivot("latency", "Latency", f"{caption}.", ("Shape", "Target"), entries)


def _claim_rate(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (name[row.target],),
            _consumers(row.consumers),
            rate_cell(row.rows_per_second) if row.rows_per_second else gap_cell(row.refused),
            row.target,
        )
        for row in by_target(document, document.claim_rate)
    ]
    rows = " or ".join(f"{count:,}" for count in sorted({r.rows for r in document.claim_rate}))
    caption = (
        f"Rows per second that all consumers together claim while they drain {rows} ready rows; "
        f"each row was claimed exactly once."
    )
    counts = sorted({row.consumers for row in document.claim_rate})
    columns = tuple(_consumers(count) for count in counts)
    return pivot("claim_rate", "Claim rate", caption, ("Target",), entries, columns=columns)


def _growth(document: BenchDocument) -> PivotTable:
    name = names(document)
    entries = [
        Entry(
            (name[row.target], row.operation),
            f"{row.rows_in_partition:,} rows",
            seconds_cell(row.seconds) if row.seconds else gap_cell(row.refused),
            row.target,
        )
        for row in by_target(document, document.growth)
    ]
    batch = " or ".join(str(count) for count in sorted({row.batch for row in document.growth}))
    caption = f"Time of one operation on {batch} rows while the partition holds as many as named."
    counts = sorted({row.rows_in_partition for row in document.growth})
    columns = tuple(f"{count:,} rows" for count in counts)
    labels = ("Target", "Operation")
    return pivot("growth", "Growth in seconds", caption, labels, entries, columns=columns)


def _consumers(count: int) -> str:
    return "1 consumer" if count == 1 else f"{count} consumers"
