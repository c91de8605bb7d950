"""Two kinds of plot, dots in bands and lines, drawn alike whatever they show.

One target has one colour and one marker in all of them. The axis of the figures is logarithmic.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from rlconform.bench.report.svg import inline_svg

#: Okabe and Ito's colours, which people of every colour vision tell apart; without the yellow,
#: which is lost on white.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#595959"

_WIDTH = 9.6  # inches
_LONGEST_LABEL = 36

_STYLE: Any = {  # matplotlib types its keys, and not every version alike
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


@dataclass(frozen=True)
class Style:
    """How a target is drawn wherever it appears."""

    label: str
    colour: str
    marker: str


@dataclass(frozen=True)
class Point:
    """A figure to draw: its value and how far its whiskers reach, low <= value <= high."""

    value: float
    low: float
    high: float


#: By target and by the name of the row in which the mark stands.
Marks = Mapping[tuple[str, str], Point]

#: By target and by place on the x axis.
Points = Mapping[str, Mapping[float, Point]]


def looks_of(labels: Mapping[str, str]) -> dict[str, Style]:
    """A colour and a marker for each, in their order; both repeat, but not together."""
    drawn = zip(labels.items(), cycle(PALETTE), cycle(MARKERS), strict=False)
    return {key: Style(label, colour, marker) for (key, label), colour, marker in drawn}


def dot_plot(
    title: str,
    looks: Mapping[str, Style],
    panels: Mapping[str, Marks],
    *,
    rows: Sequence[str],
    axis_label: str,
    unit: Callable[[float], str],
    line_at: float | None = None,
) -> str:
    """Panels side by side, in each a band per row and in it one line per target; "" if empty."""
    drawn = {target for marks in panels.values() for target, _ in marks}
    who = {target: look for target, look in looks.items() if target in drawn}
    if not who:
        return ""
    with mpl.rc_context(_STYLE):
        figure = Figure((_WIDTH, 1.5 + 0.19 * len(rows) * (len(who) + 1)), layout="constrained")
        grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, marks) in zip(grid, panels.items(), strict=True):
            axes.set_title(name, loc="left", fontweight="bold")
            axes.set_xlabel(axis_label)
            _bands(axes, rows)
            for place, (target, look) in enumerate(who.items()):
                offset = (place + 1) / (len(who) + 1) - 0.5
                at = {index + offset: marks.get((target, row)) for index, row in enumerate(rows)}
                _dots(axes, look, {y: mark for y, mark in at.items() if mark})
                _absent(axes, look, [y for y, mark in at.items() if not mark])
            if line_at is not None:
                axes.axvline(line_at, color=GREY, linestyle="--", linewidth=1)
        _log(grid[0].xaxis, (m for marks in panels.values() for m in marks.values()), unit, line_at)
        _legend(figure, who.values())
        return inline_svg(figure, title)


def line_plot(
    title: str,
    looks: Mapping[str, Style],
    panels: Mapping[str, Points],
    *,
    x_label: str,
    y_label: str,
    unit: Callable[[float], str],
    log_x: bool = False,
) -> str:
    """Panels side by side, in each a line per target; "" where there is nothing to draw."""
    drawn = {target for points in panels.values() for target in points}
    who = {target: look for target, look in looks.items() if target in drawn}
    if not who:
        return ""
    lines = [line for points in panels.values() for line in points.values()]
    with mpl.rc_context(_STYLE):
        width = _WIDTH if len(panels) > 1 else _WIDTH * 0.6
        figure = Figure((width, 3.4 + 0.1 * len(who)), layout="constrained")
        grid = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, points) in zip(grid, panels.items(), strict=True):
            axes.set_title(name, loc="left", fontweight="bold")
            for target, look in who.items():
                _line(axes, look, points.get(target, {}))
            axes.set_xscale("log" if log_x else "linear")
            axes.xaxis.set_major_locator(FixedLocator(sorted({x for line in lines for x in line})))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
            axes.margins(x=0.12)
        _log(grid[0].yaxis, (mark for line in lines for mark in line.values()), unit)
        figure.supxlabel(x_label, fontsize="medium")
        grid[0].set_ylabel(y_label)
        _legend(figure, who.values())
        return inline_svg(figure, title)


def _bands(axes: Axes, rows: Sequence[str]) -> None:
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row on top
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    for index in range(1, len(rows), 2):
        axes.axhspan(index - 0.5, index + 0.5, color="#F5F5F5", zorder=0, linewidth=0)


def _dots(axes: Axes, look: Style, at: Mapping[float, Point]) -> None:
    values = [mark.value for mark in at.values()]
    axes.errorbar(values, list(at), xerr=_arms(at.values()), linestyle="none", **_pen(look))


def _line(axes: Axes, look: Style, at: Mapping[float, Point]) -> None:
    at = dict(sorted(at.items()))
    values = [mark.value for mark in at.values()]
    axes.errorbar(list(at), values, yerr=_arms(at.values()), linewidth=1.5, **_pen(look))


def _pen(look: Style) -> dict[str, Any]:
    shape = {"marker": look.marker, "markersize": 6, "elinewidth": 1.5, "capsize": 2.5}
    return {"color": look.colour} | shape


def _arms(marks: Iterable[Point]) -> tuple[list[float], list[float]]:
    marks = list(marks)
    return [mark.value - mark.low for mark in marks], [mark.high - mark.value for mark in marks]


def _absent(axes: Axes, look: Style, heights: Sequence[float]) -> None:
    """A missing dot must not be taken for one outside of the picture."""
    across = axes.get_yaxis_transform()
    for y in heights:
        axes.text(
            0.965, y, "no figure", transform=across, color=GREY, fontsize=7.5,
            ha="right", va="center_baseline",
        )  # fmt: skip
        axes.plot(
            [0.985], [y], look.marker, transform=across, color=look.colour,
            markersize=5, markerfacecolor="white",
        )  # fmt: skip


def _log(
    axis: Axis, marks: Iterable[Point], unit: Callable[[float], str], include: float | None = None
) -> None:
    """A logarithmic axis of at least one decade with plain numbers on it."""
    ends = [end for mark in marks for end in (mark.low, mark.value, mark.high) if end > 0]
    ends += [] if include is None else [include]
    if not ends:
        return  # nothing that a logarithm could show
    low, high = min(ends) / 1.4, max(ends) * 1.4
    if (spare := math.log10(high / low)) < 1:
        low, high = low / 10 ** ((1 - spare) / 2), high * 10 ** ((1 - spare) / 2)
    axes = axis.axes
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    (axes.set_xlim if axis is axes.xaxis else axes.set_ylim)(low, high)
    subs = (1, 2, 5) if high / low < 50 else (1,)
    axis.set_major_locator(LogLocator(subs=subs, numticks=9))
    axis.set_major_formatter(FuncFormatter(lambda value, _: _short(unit(value))))
    axis.set_minor_formatter(NullFormatter())


def _short(text: str) -> str:
    """A tick's label: ``1.00 ms`` becomes ``1 ms``."""
    return re.sub(r"\.(?=\D|$)", "", re.sub(r"(\.\d*?)0+(?=\D|$)", r"\1", text))


def _legend(figure: Figure, who: Iterable[Style]) -> None:
    handles = [
        Line2D([], [], color=look.colour, marker=look.marker, linestyle="none",
               label=_cut(look.label))
        for look in who
    ]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper left", ncols=3)


def _cut(label: str) -> str:
    if len(label) <= _LONGEST_LABEL:
        return label
    return f"{label[: _LONGEST_LABEL - 1]}\N{HORIZONTAL ELLIPSIS}"
