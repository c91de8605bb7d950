"""Gates: expressions that a run's metrics must meet, e.g. before a change goes in.

    metrics.jsonl ──read_metrics──▶ MetricLog ─┐
    expressions ─────parse──────▶ Comparison ──┴─judge──▶ GateResult

A gate that can't be judged has failed: a run that ended early, a metric that is missing, a window
without values, a value that is NaN or infinite. None of them passes as "not worse than".
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
    """What became of one expression.

    Attributes:
        expression: As it was given.
        passed: Whether it holds over a whole run.
        values: Each of its aggregates, as far as they could be told.
        reason: Why it could not be judged; empty if it was.
    """

    expression: str
    passed: bool
    values: dict[str, float]
    reason: str = ""


class NoValue(Exception):
    """A term has no value over these metrics; the message says why."""


def check_metrics(path: Path, expressions: Iterable[str]) -> list[GateResult]:
    """Hold a metrics file against expressions, one result for each.

    Raises:
        ConfigError: The file is no metrics file, or an expression can't be read.
    """
    comparisons = [parse(expression) for expression in expressions]
    log = read_metrics(path)
    return [judge(log, comparison) for comparison in comparisons]


def judge(log: MetricLog, comparison: ComparisonExpression) -> GateResult:
    """Whether a run's metrics meet an expression."""
    values: dict[str, float] = {}
    try:
        terms = [_value(log, term, values) for term in comparison.terms]
    except NoValue as error:
        return GateResult(comparison.text, False, values, log.ended_early() or str(error))
    holds = all(
        compare(left, right)
        for compare, (left, right) in zip(comparison.comparisons, pairwise(terms), strict=True)
    )
    reason = log.ended_early()
    return GateResult(comparison.text, holds and not reason, values, reason)


def _value(log: MetricLog, term: Term, values: dict[str, float]) -> float:
    """The term's value, finite; those of its aggregates are noted in ``values``."""
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
    """The values that an aggregate is made of: at least one, and all of them finite."""
    whole = log.series(term.name)
    if not whole:
        raise NoValue(f"there is no metric {term.name!r}{did_you_mean(term.name, log.names)}")
    for bound in (term.start, term.stop):
        if bound is not None and abs(bound) > len(whole):
            raise NoValue(f"{term.text} asks for more values than there are, {len(whole)}")
    window = whole[term.start : term.stop]
    if not window:
        raise NoValue(f"{term.text} is of no values")
    for value in window:
        if not math.isfinite(value):
            raise NoValue(f"{term.name!r} is {value} at some step")
    return window
