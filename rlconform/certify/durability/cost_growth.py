"""Whether something grows as a run goes on: pure functions of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, quantiles

#: Samples of which at most this many are compared pair by pair.
_MOST_PAIRED = 200


@dataclass(frozen=True)
class Trend:
    """A slope, and what it is taken from."""

    per_unit: float  # growth per unit of x, by Theil and Sen: a few outliers don't matter
    typical: float  # median of y
    share_rising: float  # share of pairs of samples in which the later one is larger, 0 to 1

    def over(self, span: float) -> float:
        """Return the growth over ``span`` units of x."""
        return self.per_unit * span


def growth(x: Sequence[float], y: Sequence[float], skip: float = 1 / 3) -> Trend | None:
    """Return the growth of y with x, without the first ``skip`` share of the samples.

    What a process allocates once, early in a run, is no leak. ``None`` for fewer than six samples.
    """
    first = int(len(x) * skip)
    every = max(1, (len(x) - first) // _MOST_PAIRED)
    pairs = list(zip(x[first::every], y[first::every], strict=True))
    if len(pairs) < 6:
        return None
    slopes = [(d - b) / (c - a) for (a, b), (c, d) in combinations(pairs, 2) if c > a]
    rising = sum(slope > 0 for slope in slopes) / len(slopes)
    return Trend(median(slopes), median(value for _, value in pairs), rising)


def lower_quartile(seconds: Sequence[float]) -> float:
    """Return the lower quartile: a busy machine makes calls slower, and never faster."""
    return quantiles(seconds, n=4)[0]


def slower(first: Sequence[float], last: Sequence[float], times: float, extra_s: float) -> bool:
    """Whether the last calls cost over ``times`` the first ones, and ``extra_s`` more."""
    before, after = lower_quartile(first), lower_quartile(last)
    return after > before * times and after > before + extra_s
