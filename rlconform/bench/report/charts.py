"""Draws tables of figures as dots with whiskers on a logarithmic axis; needs matplotlib.

A target has the same colour and marker in all charts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from io import StringIO
from itertools import cycle
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import EngFormatter, Formatter, LogLocator, NullFormatter, StrMethodFormatter

from rlconform.bench.document import BenchDocument
from rlconform.bench.report.pivot import PivotTable
from rlconform.bench.report.tables import COPIES, FROM_START, HEADLINES

#: Okabe and Ito's colours, which people with any colour vision can distinguish; without the yellow,
#: which is hardly visible on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#595959"

_WIDTH = 9.6  # inches
_LONGEST_LABEL = 36

_STYLE: Any = {  # matplotlib's types for its keys differ between versions
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rlconform",
    "text.parse_math": False,  # a target may be named "$x$"
    "ytick.major.size": 0,
}


class Place(NamedTuple):
    """Where a cell's figure is drawn: panels are side by side, and all have the same bands."""

    panel: str
    band: str
    target: str


class Chart(NamedTuple):
    """How a table is drawn.

    ``place`` takes the labels of a cell's row and the heading of its column; ``None`` means
    that it is not drawn. With ``joined``, a line joins the dots of a target.
    """

    place: Callable[..., Place | None]
    axis: str
    ticks: Formatter
    caption: str
    joined: bool = False


#: Colour and marker of each target, by its label.
Styles = dict[str, tuple[str, str]]

_COPY_STYLES = dict(zip(COPIES, [(GREY, "d"), (GREY, "x")], strict=True))


def charts(document: BenchDocument) -> dict[str, Chart]:
    """Return the charts of a document, by the key of the table that each chart draws."""
    smallest = min(document.shapes, key=lambda shape: shape.bytes).name if document.shapes else ""

    def headline(shape: str, target: str, operation: str) -> Place | None:
        return Place(operation, shape, target) if operation in HEADLINES else None

    def of_smallest(shape: str, target: str, operation: str) -> Place | None:
        return Place(f"shape {shape}", operation, target) if shape == smallest else None

    def woken(target: str, column: str) -> Place | None:
        return Place("", column, target) if column == FROM_START else None

    return {
        "costs": Chart(
            headline,
            "times one copy of as many bytes (log); left is better",
            StrMethodFormatter("{x:,g}\N{MULTIPLICATION SIGN}"),
            "At 1, an operation takes as long as one copy of as many bytes into memory already "
            "touched. Whiskers: bounds from the quartiles.",
        ),
        "wake": Chart(
            woken,
            "time until the claim returns (log), median to p99; left is better",
            EngFormatter("s"),
            "A whisker reaches from the median to the p99.",
        ),
        "throughput": Chart(
            headline,
            "bytes per second (log); right is better",
            EngFormatter("B/s"),
            "Medians and quartiles. Ratios are relative to the copy into touched memory.",
        ),
        "latency": Chart(
            of_smallest,
            "time of one call (log), median to p99; left is better",
            EngFormatter("s"),
            "The smallest batch: what a call costs before it carries much. A whisker reaches from "
            "the median to the p99.",
        ),
        "claim_rate": Chart(
            lambda target, consumers: Place("", consumers, target),
            "rows per second (log); right is better",
            EngFormatter(),
            "Medians and quartiles. A vertical line is a plane that more consumers don't speed up.",
            joined=True,
        ),
        "growth": Chart(
            lambda target, operation, rows: Place(operation, rows, target),
            "time (log); left is better",
            EngFormatter("s"),
            "Medians and quartiles. A vertical line is a cost that doesn't depend on the other "
            "rows of the partition; why a figure is missing, Not measured explains.",
            joined=True,
        ),
    }


def styles_of(labels: Sequence[str]) -> Styles:
    """Return a colour and a marker for each label; the first 56 labels get different pairs."""
    styles = zip(cycle(PALETTE), cycle(MARKERS), strict=False)
    return dict(zip(labels, styles, strict=False))


def draw(table: PivotTable, chart: Chart, styles: Styles) -> str:
    """Return SVG of panels side by side, with the same bands, and in each band a dot per target.

    "no figure" marks a target without a figure in a band. Return "" if no figure is above zero.
    """
    figures = {
        place: cell.drawn
        for labels, cells in table.rows
        for column, cell in zip(table.headings[len(labels) :], cells, strict=True)
        if cell.drawn and cell.drawn[1] > 0 and (place := chart.place(*labels, column))
    }
    if not figures:
        return ""
    panels, bands, targets = (list(dict.fromkeys(names)) for names in zip(*figures, strict=True))
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # The browser draws the text, so it doesn't matter which glyphs matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        height = 1.8 + 0.19 * len(bands) * (len(targets) + 1)
        figure = Figure((_WIDTH, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.08))
        grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, panel in zip(grid, panels, strict=True):
            axes.set_title(panel, loc="left", fontweight="bold")
            axes.set_xlabel(chart.axis)
            _draw_bands(axes, bands)
            for number, target in enumerate(targets, 1):
                found = {
                    y + number / (len(targets) + 1) - 0.5: figures.get(Place(panel, band, target))
                    for y, band in enumerate(bands)
                }
                _draw_dots(axes, target, found, *(styles | _COPY_STYLES)[target], chart.joined)
        _set_log(grid[0], chart.ticks)
        legend = figure.legend(
            *grid[0].get_legend_handles_labels(),
            loc="outside upper left", ncols=3, title=table.title, alignment="left",
        )  # fmt: skip
        legend.get_title().set(fontweight="bold", fontsize=11)
        written = StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def _draw_bands(axes: Axes, bands: Sequence[str]) -> None:
    axes.set_ylim(len(bands) - 0.5, -0.5)  # the first band on top
    axes.set_yticks(range(len(bands)), bands)
    for index in range(1, len(bands), 2):
        axes.axhspan(index - 0.5, index + 0.5, color="#F5F5F5", zorder=0, linewidth=0)


def _draw_dots(
    axes: Axes,
    target: str,
    found: Mapping[float, tuple[float, float, float] | None],
    colour: str,
    marker: str,
    joined: bool,
) -> None:
    dots = {y: figure for y, figure in found.items() if figure}
    value, low, high = np.reshape(list(dots.values()), (-1, 3)).T
    axes.errorbar(
        value,
        list(dots),
        xerr=(value - low, high - value),
        label=target if len(target) <= _LONGEST_LABEL else f"{target[: _LONGEST_LABEL - 1]}…",
        color=colour,
        marker=marker,
        linestyle="-" if joined else "none",
        elinewidth=1.5,
        capsize=2.5,
    )
    for y in found.keys() - dots.keys():
        axes.text(
            0.98, y, "no figure", transform=axes.get_yaxis_transform(),
            color=colour, fontsize=7.5, ha="right", va="center_baseline",
        )  # fmt: skip


def _set_log(axes: Axes, ticks: Formatter) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    low, high = low / (high / low) ** 0.03, high * (high / low) ** 0.05  # the last label fits
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 50 else (1,)))
    axes.xaxis.set_major_formatter(ticks)
    axes.xaxis.set_minor_formatter(NullFormatter())
