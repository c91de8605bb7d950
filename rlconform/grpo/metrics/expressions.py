"""Parses expressions over metrics, such as ``mean(train/reward[-10:]) > 0.9``.

    comparison = sum (< | <= | > | >= | == | !=) sum ...
    sum        = number | aggregate | sum (+ | - | * | /) sum | -sum | (sum)
    aggregate  = (min | max | mean | median | last)(series)
    series     = name | name[start:stop], a Python slice: [-10:] selects the last ten values
    name       = words joined by / and . ; any other name in quotes: "val/pass@1"

Python's parser reads the text, and nothing is executed. Any other syntax is an error, which is
raised before a metrics file is read.
"""

from __future__ import annotations

import ast
import math
import operator
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlconform.contract import ConfigError

AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "max": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "last": lambda values: values[-1],
}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


#: Characters; parsing nests with the parentheses.
LONGEST_EXPRESSION = 1000


class ExpressionError(ConfigError):
    """An expression can't be parsed; the message names the faulty part."""


@dataclass(frozen=True)
class Number:
    """A finite number."""

    value: float


@dataclass(frozen=True)
class Aggregate:
    """A function of a metric's values, or of their window ``start:stop``."""

    text: str
    function: str
    name: str
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True)
class Arithmetic:
    """Two terms and the operation that combines them."""

    text: str
    operation: Callable[[float, float], float]
    left: Term
    right: Term


Term = Number | Aggregate | Arithmetic


@dataclass(frozen=True)
class ComparisonExpression:
    """A whole expression; each term is compared with the next, as in ``0.1 < mean(x) < 0.5``."""

    text: str
    terms: list[Term]
    comparisons: list[Callable[[float, float], bool]]


def parse(text: str) -> ComparisonExpression:
    """Parse an expression; ``ExpressionError`` for invalid syntax, or if it reads no metric."""
    return _Parser(text.strip()).comparison()


class _Parser:
    """Translates Python's syntax tree of one expression, node by node."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._aggregates = 0

    def comparison(self) -> ComparisonExpression:
        if len(self._text) > LONGEST_EXPRESSION:
            raise ExpressionError(
                f"expected an expression of at most {LONGEST_EXPRESSION} characters"
            )
        try:
            tree = ast.parse(self._text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{self._text!r} is not an expression: {error}") from error
        if not isinstance(tree, ast.Compare):
            raise self._error(tree, "expected a comparison, e.g. mean(train/reward) > 0.9")
        if not all(type(op) in _COMPARISONS for op in tree.ops):
            raise self._error(tree, "expected one of < <= > >= == !=")
        terms = [self._term(node) for node in (tree.left, *tree.comparators)]
        if not self._aggregates:
            raise self._error(tree, f"it reads no metric; use one of {', '.join(AGGREGATES)}")
        return ComparisonExpression(self._text, terms, [_COMPARISONS[type(op)] for op in tree.ops])

    def _term(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
                return Number(self._finite(node, value))
            case ast.UnaryOp(op=ast.USub()):
                return Arithmetic(
                    self._source(node), operator.sub, Number(0), self._term(node.operand)
                )
            case ast.BinOp(op=op) if type(op) in _ARITHMETIC:
                left, right = self._term(node.left), self._term(node.right)
                return Arithmetic(self._source(node), _ARITHMETIC[type(op)], left, right)
            case ast.Call(func=ast.Name(id=function), args=[series], keywords=[]):
                if function not in AGGREGATES:
                    raise self._error(node, f"expected one of {', '.join(AGGREGATES)}")
                self._aggregates += 1
                name, window = self._series(series)
                return Aggregate(self._source(node), function, name, *window)
        raise self._error(node, f"expected a number, or {', '.join(AGGREGATES)} of a metric")

    def _series(self, node: ast.expr) -> tuple[str, tuple[int | None, int | None]]:
        """Return the name and the window; Python parses ``a/b[-3:]`` as ``a / (b[-3:])``."""
        match node:
            case ast.Constant(value=str() as name) if name:
                return name, (None, None)
            case ast.Name(id=name):
                return name, (None, None)
            case ast.Attribute(value=value, attr=attribute):
                return f"{self._name(value)}.{attribute}", (None, None)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                name, window = self._series(right)
                return f"{self._name(left)}/{name}", window
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                return self._name(value), (self._bound(lower), self._bound(upper))
        raise self._error(node, 'expected a metric, e.g. train/loss, "val/pass@1", loss[-10:]')

    def _name(self, node: ast.expr) -> str:
        """Return the metric's name; ``ExpressionError`` if the node has a window."""
        name, window = self._series(node)
        if window != (None, None):
            raise self._error(node, "a window comes last, e.g. train/loss[-10:]")
        return name

    def _bound(self, node: ast.expr | None) -> int | None:
        match node:
            case None:
                return None
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
                return -value
        raise self._error(node, "the bounds of a window are integers, e.g. [-10:]")

    def _finite(self, node: ast.expr, value: float) -> float:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self._error(node, "the number is too large")
        return number

    def _source(self, node: ast.expr) -> str:
        return ast.get_source_segment(self._text, node) or ast.unparse(node)

    def _error(self, node: ast.expr, why: str) -> ExpressionError:
        return ExpressionError(f"{self._text!r}: can't read {self._source(node)!r}: {why}")
