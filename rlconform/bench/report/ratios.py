"""From measured figures to ratios: what a plane costs in copies of memory, and beside the others.

A ratio is median over median. Its bounds set the quartiles against each other the unfavourable way
(low over high, high over low), so they hold wherever the middle halves of both samples lie: they
are wider than a confidence interval, and two planes whose bounds don't meet do differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

from rlconform.bench.document import BenchDocument, Growth, OperationTimes, Summary


@dataclass(frozen=True)
class Ratio:
    """Median over median; ``low`` and ``high`` bound it by the quartiles of both."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MemcpyRatio:
    """What an operation costs, in copies of as many bytes into memory already touched."""

    target: str
    shape: str
    operation: str
    ratio: Ratio


@dataclass(frozen=True)
class PlaneComparison:
    """``target`` is ``ratio`` times as fast as ``other`` at an operation on a shape."""

    target: str
    other: str
    shape: str
    operation: str
    ratio: Ratio


@dataclass(frozen=True)
class GrowthRatio:
    """What the operation costs in the fullest partition, over what it costs in the emptiest."""

    target: str
    operation: str
    fewest_rows: int
    most_rows: int
    ratio: Ratio


@dataclass(frozen=True)
class ScalingRatio:
    """Rows per second that ``consumers`` claim together, over what one of them claims alone."""

    target: str
    consumers: int
    ratio: Ratio


def over(above: Summary, below: Summary) -> Ratio | None:
    """``above`` over ``below``; None where the clock saw nothing pass in either."""
    if min(above.p25, below.p25) <= 0:
        return None
    return Ratio(above.median / below.median, above.p25 / below.p75, above.p75 / below.p25)


def against_memcpy(document: BenchDocument) -> list[MemcpyRatio]:
    """Every measured operation over the warm memcpy of its shape, in the document's order."""
    copies = {copy.shape: copy.warm for copy in document.memcpy}
    return [
        MemcpyRatio(row.target, row.shape, row.operation, ratio)
        for row in document.operations
        if row.seconds and row.shape in copies and (ratio := over(row.seconds, copies[row.shape]))
    ]


def between_targets(document: BenchDocument) -> list[PlaneComparison]:
    """Every ordered pair of targets that were both measured at an operation on a shape."""
    contests: dict[tuple[str, str], list[OperationTimes]] = {}
    for row in document.operations:
        contests.setdefault((row.shape, row.operation), []).append(row)
    return [
        PlaneComparison(one.target, other.target, shape, operation, ratio)
        for (shape, operation), rows in contests.items()
        for one, other in permutations(rows, 2)
        if one.seconds and other.seconds and (ratio := over(other.seconds, one.seconds))
    ]


def growth_ratios(document: BenchDocument) -> list[GrowthRatio]:
    """The cost of each operation between the smallest and the largest partition measured."""
    series: dict[tuple[str, str], list[Growth]] = {}
    for row in document.growth:
        if row.seconds:
            series.setdefault((row.target, row.operation), []).append(row)
    found = []
    for (target, operation), rows in series.items():
        first = min(rows, key=lambda row: row.rows_in_partition)
        last = max(rows, key=lambda row: row.rows_in_partition)
        if first is last or not (first.seconds and last.seconds):
            continue
        if ratio := over(last.seconds, first.seconds):
            sizes = (first.rows_in_partition, last.rows_in_partition)
            found.append(GrowthRatio(target, operation, *sizes, ratio))
    return found


def scaling_ratios(document: BenchDocument) -> list[ScalingRatio]:
    """The claim rate of several consumers over that of one, per target."""
    alone = {row.target: row.rows_per_second for row in document.claim_rate if row.consumers == 1}
    return [
        ScalingRatio(row.target, row.consumers, ratio)
        for row in document.claim_rate
        if row.consumers > 1
        and row.rows_per_second
        and (single := alone.get(row.target))
        and (ratio := over(row.rows_per_second, single))
    ]
