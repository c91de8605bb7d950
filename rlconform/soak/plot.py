"""Geometry of line plots, which the page draws as SVG. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1000.0, 230.0, 70.0, 12.0, 10.0, 22.0
#: Most points of a line; of more, each stands for the largest of several.
MOST_POINTS = 250
COLOURS = ("blue", "orange", "green", "purple", "grey", "pass", "fail", "unsure")


@dataclass(frozen=True)
class PlotLine:
    """One line: its name, the name of a colour of the page, and ``x,y`` pairs as SVG wants them."""

    name: str
    colour: str
    dashed: bool
    points: str
    last: str  # its last value, as text


@dataclass(frozen=True)
class Plot:
    """Lines over the seconds of a run, with grid lines and their labels."""

    title: str
    caption: str
    lines: list[PlotLine]
    across: list[tuple[float, str]]  # y, label
    down: list[tuple[float, str]]  # x, label


def plot(
    title: str,
    caption: str,
    unit: str,
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]],
) -> Plot:
    """Return a plot of each line's seconds and values; the axis begins at 0."""
    most = max((max(y) for _, y in lines.values() if y), default=0.0)
    longest = max((x[-1] for x, _ in lines.values() if x), default=0.0) or 1.0
    step = _step(most)
    top = step * max(1, math.ceil(most / step))

    def place(x: float, y: float) -> str:
        right = LEFT + (WIDTH - LEFT - RIGHT) * x / longest
        down = TOP + (HEIGHT - TOP - BOTTOM) * (1 - y / top)
        return f"{right:.1f},{down:.1f}"

    drawn = [
        PlotLine(
            name,
            COLOURS[number % len(COLOURS)],
            number >= len(COLOURS),
            " ".join(place(*pair) for pair in _thinned(x, y)),
            f"{y[-1]:,.1f} {unit}",
        )
        for number, (name, (x, y)) in enumerate(lines.items())
        if y
    ]
    across = [
        (TOP + (HEIGHT - TOP - BOTTOM) * (1 - n * step / top), f"{n * step:,g} {unit}")
        for n in range(round(top / step) + 1)
    ]
    every = _step(longest)
    down = [
        (LEFT + (WIDTH - LEFT - RIGHT) * n * every / longest, f"{n * every:,g} s")
        for n in range(int(longest / every) + 1)
    ]
    return Plot(title, caption, drawn, across, down)


def _step(most: float) -> float:
    """Return a round distance of about five grid lines."""
    if most <= 0:
        return 1.0
    power: float = 10 ** math.floor(math.log10(most / 5))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= most / 5)


def _thinned(x: Sequence[float], y: Sequence[float]) -> list[tuple[float, float]]:
    every = -(-len(x) // MOST_POINTS)
    return [(x[n], max(y[n : n + every])) for n in range(0, len(x), every)]
