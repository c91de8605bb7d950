"""Computes ratios of measured figures: planes against a copy of memory, and against each other.

A ratio is median over median. Its bounds divide opposite quartiles (low over high,
high over low), so they include the ratio of any two values from the middle halves of the samples.
They are wider than a confidence interval; two planes whose bounds don't overlap differ.
"""

from __future__ import annotations

from itertools import groupby, permutations
from operator import attrgetter
from typing import NamedTuple

from rlconform.bench.document import BenchDocument, Growth, Summary


class Ratio(NamedTuple):
    """A median over a median; the bounds ``low`` and ``high`` come from the quartiles."""

    value: float
    low: float
    high: float


def over(above: Summary | None, below: Summary | None) -> Ratio | None:
    """Return ``above`` over ``below``; None if one is missing or the clock measured no time."""
    if above is None or below is None or min(above.p25, below.p25) <= 0:
        return None
    return Ratio(above.median / below.median, above.p25 / below.p75, above.p75 / below.p25)


def against_memcpy(document: BenchDocument) -> dict[tuple[str, str, str], Ratio]:
    """Return time over the time of a copy into touched memory, by target, shape and operation."""
    copies = {copy.shape: copy.warm for copy in document.memcpy}
    return {
        (row.target, row.shape, row.operation): ratio
        for row in document.operations
        if (ratio := over(row.seconds, copies.get(row.shape)))
    }


def between_targets(document: BenchDocument) -> dict[tuple[str, str, str, str], Ratio]:
    """Return how many times as fast a target is as another, by both targets, shape, operation."""
    measured = attrgetter("shape", "operation")
    return {
        (one.target, other.target, shape, operation): ratio
        for (shape, operation), rows in groupby(sorted(document.operations, key=measured), measured)
        for one, other in permutations(rows, 2)
        if (ratio := over(other.seconds, one.seconds))
    }


def growth_ratios(document: BenchDocument) -> dict[tuple[str, str, int, int], Ratio]:
    """Return time in the fullest partition over the emptiest, by target, operation and rows."""
    series: dict[tuple[str, str], list[Growth]] = {}
    for row in sorted(document.growth, key=attrgetter("rows_in_partition")):
        if row.seconds:
            series.setdefault((row.target, row.operation), []).append(row)
    return {
        (*key, rows[0].rows_in_partition, rows[-1].rows_in_partition): ratio
        for key, rows in series.items()
        if len(rows) > 1 and (ratio := over(rows[-1].seconds, rows[0].seconds))
    }


def scaling_ratios(document: BenchDocument) -> dict[tuple[str, int], Ratio]:
    """Return claimed rows/s over those of a single consumer, by target and number of consumers."""
    single = {row.target: row.rows_per_second for row in document.claim_rate if row.consumers == 1}
    return {
        (row.target, row.consumers): ratio
        for row in document.claim_rate
        if row.consumers > 1 and (ratio := over(row.rows_per_second, single.get(row.target)))
    }
