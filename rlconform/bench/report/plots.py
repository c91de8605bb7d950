"""What is plotted of a bench document; ``bench.report.charts`` draws it. SVG, "" if empty."""

from __future__ import annotations

from rlconform.bench.document import BenchDocument, Summary
from rlconform.bench.report import ratios, units
from rlconform.bench.report.charts import GREY, Point, Style, dot_plot, line_plot, looks_of
from rlconform.bench.report.tables import HEADLINES, names

_COPY = ""  # stands where a target's spec would: the copy of memory
_MEMCPY = {_COPY: Style("one copy (memcpy)", GREY, "d")}
_WAKE = "wake, from put"


def looks(document: BenchDocument) -> dict[str, Style]:
    """How each target is drawn, by spec, in the document's order: a failed one keeps its place."""
    return looks_of(names(document))


def cost_plot(document: BenchDocument) -> str:
    """Put and get in copies of memory, shape by shape."""
    found = ratios.against_memcpy(document)
    panels = {
        operation: {
            (row.target, row.shape): Point(row.ratio.value, row.ratio.low, row.ratio.high)
            for row in found
            if row.operation == operation
        }
        for operation in HEADLINES
    }
    return dot_plot(
        "Put and get in copies of memory, by shape and target",
        looks(document),
        panels,
        rows=[shape.name for shape in document.shapes],
        axis_label="times one copy of as many bytes (log); left is better",
        unit=units.times,
        line_at=1.0,
    )


def throughput_plot(document: BenchDocument) -> str:
    """Put and get in bytes per second, shape by shape, beside one copy of the same bytes."""
    count = {shape.name: shape.bytes for shape in document.shapes}
    spent = {(_COPY, copy.shape): (count[copy.shape], copy.warm) for copy in document.memcpy}
    panels = {}
    for operation in HEADLINES:
        carried = spent | {
            (row.target, row.shape): (row.bytes, row.seconds)
            for row in document.operations
            if row.operation == operation and row.seconds
        }
        panels[operation] = {
            key: _per_second(size, seconds)
            for key, (size, seconds) in carried.items()
            if seconds.p25 > 0
        }
    return dot_plot(
        "Throughput of put and get, by shape and target",
        _MEMCPY | looks(document),
        panels,
        rows=[shape.name for shape in document.shapes],
        axis_label="bytes per second (log); right is better",
        unit=units.throughput,
    )


def latency_plot(document: BenchDocument) -> str:
    """Median and p99 of each operation on the smallest shape, and of waking a blocked claim."""
    smallest = min(document.shapes, key=lambda shape: shape.bytes, default=None)
    if smallest is None:
        return ""
    marks = {
        (row.target, row.operation): _to_p99(row.seconds)
        for row in document.operations
        if row.shape == smallest.name and row.seconds
    }
    marks |= {
        (row.target, _WAKE): _to_p99(row.from_start) for row in document.wake if row.from_start
    }
    return dot_plot(
        f"Latency on the shape {smallest.name}, by operation and target",
        looks(document),
        {f"shape {smallest.name}": marks},
        rows=list(dict.fromkeys(row for _, row in marks)),
        axis_label="time of one call (log), median to p99; left is better",
        unit=units.duration,
    )


def claim_rate_plot(document: BenchDocument) -> str:
    """Rows claimed per second against the number of consumers."""
    points: dict[str, dict[float, Point]] = {}
    for row in document.claim_rate:
        if row.rows_per_second:
            points.setdefault(row.target, {})[row.consumers] = _quartiles(row.rows_per_second)
    return line_plot(
        "Rows claimed per second, by number of consumers and target",
        looks(document),
        {"claim": points},
        x_label="consumers at the same time",
        y_label="rows per second (log)",
        unit=units.plain,
    )


def growth_plot(document: BenchDocument) -> str:
    """Time of an operation against the rows that the partition holds, one panel an operation."""
    panels: dict[str, dict[str, dict[float, Point]]] = {}
    for row in document.growth:
        if row.seconds:
            of_target = panels.setdefault(row.operation, {}).setdefault(row.target, {})
            of_target[row.rows_in_partition] = _quartiles(row.seconds)
    batch = " or ".join(str(count) for count in sorted({row.batch for row in document.growth}))
    return line_plot(
        "Time of an operation, by rows in the partition and target",
        looks(document),
        panels,
        x_label="rows in the partition (log)",
        y_label=f"time for {batch} rows (log)",
        unit=units.duration,
        log_x=True,
    )


def _quartiles(summary: Summary) -> Point:
    return Point(summary.median, summary.p25, summary.p75)


def _to_p99(summary: Summary) -> Point:
    return Point(summary.median, summary.median, summary.p99)


def _per_second(count: int, seconds: Summary) -> Point:
    return Point(count / seconds.median, count / seconds.p75, count / seconds.p25)
