"""Draws two kinds of plot, dots in bands and lines, in one style.

A target has the same colour and marker in all plots. The axis of the figures is logarithmic.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import cycle
from math import sqrt
from typing import Any, Literal, NamedTuple

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, Formatter, LogLocator, NullFormatter, NullLocator

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
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "rlconform",
    "text.parse_math": False,  # a target may be named "$x$"
}


class Style(NamedTuple):
    """How a target is drawn in every plot."""

    label: str
    colour: str
    marker: str


class Point(NamedTuple):
    """A figure to draw and the ends of its whiskers, low <= value <= high."""

    value: float
    low: float
    high: float


#: Points by panel, target and position: the name of a row of dots, or the x of a line.
Panels = Mapping[str, Mapping[str, Mapping[Any, Point]]]


def styles_of(labels: Mapping[str, str]) -> dict[str, Style]:
    """A colour and a marker for each label; each repeats, but not both together."""
    drawn = zip(labels.items(), cycle(PALETTE), cycle(MARKERS), strict=False)
    return {key: Style(label, colour, marker) for (key, label), colour, marker in drawn}


def dot_plot(
    styles: Mapping[str, Style],
    panels: Panels,
    *,
    rows: Sequence[str],
    axis_label: str,
    ticks: Formatter,
    line_at: float | None = None,
) -> str:
    """SVG of panels side by side with a band for each row and a dot in it for each target.

    "no figure" marks a target that has none in a row. Empty if there are no points.
    """

    def draw(axes: Axes, series: Mapping[str, Mapping[Any, Point]]) -> None:
        axes.set_xlabel(axis_label)
        _bands(axes, rows)
        for place, (target, style) in enumerate(shown.items(), 1):
            offset = place / (len(shown) + 1) - 0.5
            by_row = series.get(target, {})
            dots = {y + offset: by_row[row] for y, row in enumerate(rows) if row in by_row}
            _errorbars(axes, style, dots, dots=True)
            for y in (y + offset for y, row in enumerate(rows) if row not in by_row):
                axes.text(
                    0.98, y, "no figure", transform=axes.get_yaxis_transform(),
                    color=style.colour, fontsize=7.5, ha="right", va="center_baseline",
                )  # fmt: skip
        if line_at is not None:
            axes.axvline(line_at, color=GREY, linestyle="--", linewidth=1)

    shown = _shown(styles, panels)
    size = (_WIDTH, 1.5 + 0.19 * len(rows) * (len(shown) + 1))
    return _svg(shown, panels, size, draw, "x", ticks)


def line_plot(
    styles: Mapping[str, Style],
    panels: Panels,
    *,
    x_label: str,
    y_label: str,
    ticks: Formatter,
    log_x: bool = False,
) -> str:
    """SVG of panels side by side with a line for each target; empty if there are no points."""
    every_x = sorted({x for series in panels.values() for line in series.values() for x in line})

    def draw(axes: Axes, series: Mapping[str, Mapping[Any, Point]]) -> None:
        for target, style in shown.items():
            _errorbars(axes, style, series.get(target, {}), dots=False)
        axes.set_xscale("log" if log_x else "linear")
        axes.xaxis.set_major_locator(FixedLocator(every_x))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.margins(x=0.12)
        axes.set_xlabel(x_label)
        if axes.get_subplotspec().is_first_col():  # type: ignore[union-attr]
            axes.set_ylabel(y_label)

    shown = _shown(styles, panels)
    size = (_WIDTH if len(panels) > 1 else _WIDTH * 0.6, 3.4 + 0.1 * len(shown))
    return _svg(shown, panels, size, draw, "y", ticks)


def _shown(styles: Mapping[str, Style], panels: Panels) -> dict[str, Style]:
    drawn = {target for series in panels.values() for target, points in series.items() if points}
    return {target: style for target, style in styles.items() if target in drawn}


def _svg(
    shown: Mapping[str, Style],
    panels: Panels,
    size: tuple[float, float],
    draw: Callable[[Axes, Mapping[str, Mapping[Any, Point]]], None],
    figures_axis: Literal["x", "y"],
    ticks: Formatter,
) -> str:
    if not shown:
        return ""
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        # The browser draws the text, so it doesn't matter which glyphs matplotlib's font lacks.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure = Figure(size, layout="constrained")
        grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, series) in zip(grid, panels.items(), strict=True):
            axes.set_title(name, loc="left", fontweight="bold")
            draw(axes, series)
        if any(point.low > 0 for point in _points(panels)):
            _set_log(grid[0], figures_axis, ticks)
        handles = [
            Line2D([], [], color=style.colour, marker=style.marker, linestyle="none",
                   label=_cut(style.label))
            for style in shown.values()
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside upper left", ncols=3)
        written = StringIO()
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()


def _points(panels: Panels) -> Iterator[Point]:
    return (p for series in panels.values() for points in series.values() for p in points.values())


def _bands(axes: Axes, rows: Sequence[str]) -> None:
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for index in range(1, len(rows), 2):
        axes.axhspan(index - 0.5, index + 0.5, color="#F5F5F5", zorder=0, linewidth=0)


def _errorbars(axes: Axes, style: Style, points: Mapping[float, Point], *, dots: bool) -> None:
    positions = sorted(points)
    values = [points[position].value for position in positions]
    whiskers = [
        [points[position].value - points[position].low for position in positions],
        [points[position].high - points[position].value for position in positions],
    ]
    pen: Any = {"color": style.colour, "marker": style.marker, "markersize": 6,
                "elinewidth": 1.5, "capsize": 2.5}  # fmt: skip
    if dots:
        axes.errorbar(values, positions, xerr=whiskers, linestyle="none", **pen)
    else:
        axes.errorbar(positions, values, yerr=whiskers, linewidth=1.5, **pen)


def _set_log(axes: Axes, letter: Literal["x", "y"], ticks: Formatter) -> None:
    """Make the axis logarithmic, over one decade at least."""
    axis: Axis = getattr(axes, f"{letter}axis")
    axes.set(**{f"{letter}scale": "log"})
    low, high = axis.get_view_interval()
    if high / low < 10:
        low, high = sqrt(low * high / 10), sqrt(low * high * 10)
        axes.set(**{f"{letter}lim": (low, high)})
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 50 else (1,), numticks=9))
    axis.set_major_formatter(ticks)
    axis.set_minor_formatter(NullFormatter())


def _cut(label: str) -> str:
    if len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[: _LONGEST_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
