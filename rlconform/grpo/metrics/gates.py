"""Gates: expressions that must hold over a run's metrics.

    metrics.jsonl ─ read_metrics ─▶ MetricLog ────────────┐
    expressions ─── parse ────────▶ ComparisonExpression ─┴─ evaluate ─▶ GateResult

A gate that can't be evaluated fails: the run ended early, a metric is missing, a window is empty,
or a value is NaN or infinite.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rlconform.contract import did_you_mean
from rlconform.grpo.metrics.expressions import (
    AGGREGATES,
    Aggregate,
    Arithmetic,
    ComparisonExpression,
    Number,
    Term,
    parse,
)
from rlconform.grpo.metrics.reader import MetricLog, read_metrics


@dataclass(frozen=True)
class GateResult:
    """The result of one expression."""

    expression: str
    passed: bool  # it holds, and the run is complete
    values: dict[str, float]  # of its aggregates, as far as they could be computed
    reason: str = ""  # why it could not be evaluated; empty if it could


class NoValue(Exception):
    """A term can't be computed from the metrics; the message says why."""


def check_metrics(path: Path, expressions: Iterable[str]) -> list[GateResult]:
    """Evaluate expressions over a metrics file; ``ConfigError`` for an invalid file or text."""
    comparisons = [parse(expression) for expression in expressions]
    log = read_metrics(path)
    return [evaluate(log, comparison) for comparison in comparisons]


def evaluate(log: MetricLog, comparison: ComparisonExpression) -> GateResult:
    """Evaluate one expression over a run's metrics."""
    values: dict[str, float] = {}
    reason = log.ended_early()
    try:
        terms = [_value(log, term, values) for term in comparison.terms]
    except NoValue as error:
        return GateResult(comparison.text, False, values, reason or str(error))
    holds = all(
        compare(left, right)
        for compare, (left, right) in zip(comparison.comparisons, pairwise(terms), strict=True)
    )
    return GateResult(comparison.text, holds and not reason, values, reason)


def _value(log: MetricLog, term: Term, values: dict[str, float]) -> float:
    """Compute a term's finite value, and record the values of its aggregates in ``values``."""
    match term:
        case Number():
            return term.value
        case Aggregate():
            value = AGGREGATES[term.function](_window(log, term))
            values[term.text] = value
            return value
        case Arithmetic():
            left, right = (_value(log, part, values) for part in (term.left, term.right))
            try:
                value = term.operation(left, right)
            except ZeroDivisionError:
                raise NoValue(f"{term.text} divides by zero") from None
            if not math.isfinite(value):
                raise NoValue(f"{term.text} is {value}")
            return value


def _window(log: MetricLog, term: Aggregate) -> list[float]:
    """Return the finite values that an aggregate reads; otherwise raise ``NoValue``."""
    whole = log.series(term.name)
    if not whole:
        raise NoValue(f"there is no metric {term.name!r}{did_you_mean(term.name, log.names)}")
    for bound in (term.start, term.stop):
        if bound is not None and abs(bound) > len(whole):
            raise NoValue(f"{term.text} needs more values than the {len(whole)} recorded ones")
    window = whole[term.start : term.stop]
    if not window:
        raise NoValue(f"{term.text} selects no values")
    for value in window:
        if not math.isfinite(value):
            raise NoValue(f"{term.name!r} is {value} at some step")
    return window
