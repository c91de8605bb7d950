"""Selects the figures of a bench document to plot; each plot is an SVG text, or "" if empty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from matplotlib.ticker import EngFormatter, StrMethodFormatter

from rlconform.bench.document import BenchDocument, Summary
from rlconform.bench.report import ratios
from rlconform.bench.report.charts import GREY, Point, Style, dot_plot, line_plot, styles_of
from rlconform.bench.report.tables import HEADLINES, names

_COPY = ""  # in place of a target's spec: the copy of memory
_MEMCPY = {_COPY: Style("one copy (memcpy)", GREY, "d")}
_SECONDS = EngFormatter(unit="s")
_RATIO = StrMethodFormatter("{x:,g}\N{MULTIPLICATION SIGN}")

_Panel = dict[str, dict[Any, Point]]


def styles(document: BenchDocument) -> dict[str, Style]:
    """The style of each target by spec; a failed target has one too."""
    return styles_of(names(document))


def cost_plot(document: BenchDocument) -> str:
    """Put and get in copies of memory, shape by shape."""
    panels: dict[str, _Panel] = {operation: {} for operation in HEADLINES}
    for (target, shape, operation), ratio in ratios.against_memcpy(document).items():
        if operation in panels:
            panels[operation].setdefault(target, {})[shape] = Point(*ratio)
    return dot_plot(
        styles(document),
        panels,
        rows=[shape.name for shape in document.shapes],
        axis_label="times one copy of as many bytes (log); left is better",
        ticks=_RATIO,
        line_at=1.0,
    )


def throughput_plot(document: BenchDocument) -> str:
    """Put and get in bytes per second, shape by shape, next to one copy of the same bytes."""
    sizes = {shape.name: shape.bytes for shape in document.shapes}
    copies = [(_COPY, copy.shape, sizes[copy.shape], copy.warm) for copy in document.memcpy]
    panels: dict[str, _Panel] = {}
    for operation in HEADLINES:
        panel = panels.setdefault(operation, {})
        carried = [
            (row.target, row.shape, row.bytes, row.seconds)
            for row in document.operations
            if row.operation == operation and row.seconds
        ]
        for target, shape, count, seconds in [*copies, *carried]:
            if seconds.p25 > 0:
                per_second = [count / s for s in (seconds.median, seconds.p75, seconds.p25)]
                panel.setdefault(target, {})[shape] = Point(*per_second)
    return dot_plot(
        _MEMCPY | styles(document),
        panels,
        rows=[shape.name for shape in document.shapes],
        axis_label="bytes per second (log); right is better",
        ticks=EngFormatter(unit="B/s"),
    )


def latency_plot(document: BenchDocument) -> str:
    """Median and p99 of each operation on the smallest shape, and of waking a blocked claim."""
    smallest = min(document.shapes, key=lambda shape: shape.bytes, default=None)
    if smallest is None:
        return ""
    measured = [
        *((row.target, row.operation, row.seconds) for row in document.operations
          if row.shape == smallest.name),
        *((row.target, "wake, from put", row.from_start) for row in document.wake),
    ]  # fmt: skip
    panel: _Panel = {}
    for target, row, seconds in measured:
        if seconds:
            whisker = Point(seconds.median, seconds.median, seconds.p99)
            panel.setdefault(target, {})[row] = whisker
    return dot_plot(
        styles(document),
        {f"shape {smallest.name}": panel},
        rows=list(dict.fromkeys(row for _, row, seconds in measured if seconds)),
        axis_label="time of one call (log), median to p99; left is better",
        ticks=_SECONDS,
    )


def claim_rate_plot(document: BenchDocument) -> str:
    """Rows claimed per second against the number of consumers."""
    panel: _Panel = {}
    for row in document.claim_rate:
        if row.rows_per_second:
            panel.setdefault(row.target, {})[row.consumers] = _quartiles(row.rows_per_second)
    return line_plot(
        styles(document),
        {"claim": panel},
        x_label="consumers at the same time",
        y_label="rows per second (log)",
        ticks=EngFormatter(),
    )


def growth_plot(document: BenchDocument) -> str:
    """Time of an operation against the rows in the partition, one panel per operation."""
    panels: dict[str, _Panel] = {}
    for row in document.growth:
        if row.seconds:
            series = panels.setdefault(row.operation, {}).setdefault(row.target, {})
            series[row.rows_in_partition] = _quartiles(row.seconds)
    batch = " or ".join(str(count) for count in sorted({row.batch for row in document.growth}))
    return line_plot(
        styles(document),
        panels,
        x_label="rows in the partition (log)",
        y_label=f"time for {batch} rows (log)",
        ticks=_SECONDS,
        log_x=True,
    )


def _quartiles(summary: Summary) -> Point:
    return Point(summary.median, summary.p25, summary.p75)


#: By the key of the table that a plot is shown with.
PLOTS: dict[str, Callable[[BenchDocument], str]] = {
    "costs": cost_plot,
    "throughput": throughput_plot,
    "latency": latency_plot,
    "claim_rate": claim_rate_plot,
    "growth": growth_plot,
}
