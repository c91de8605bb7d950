"""``Calculator``: exact arithmetic with +, -, *, / and parentheses; no other Python runs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, ClassVar

from rlconform.grpo.tools.base import Tool, ToolError

#: A longer expression, or a longer result, is refused, so that a call takes no time.
_MOST_CHARACTERS = 200


class Calculator(Tool):
    """Evaluates an expression; a result that is no integer is a fraction such as ``7/2``."""

    name = "calculator"
    description = "Evaluates an arithmetic expression with +, -, *, / and parentheses."
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    }

    def run(self, arguments: Mapping[str, Any]) -> str:
        """Return the value of ``expression``."""
        return str(evaluate(self.text_argument(arguments, "expression")))


def evaluate(expression: str) -> Fraction:
    """Compute an expression; ``ToolError`` if it is none, too long, or divides by 0."""
    if len(expression) > _MOST_CHARACTERS:
        raise ToolError(f"expected at most {_MOST_CHARACTERS} characters; got {len(expression)}")
    try:
        return _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"expected an arithmetic expression; got {expression!r}") from error
    except ZeroDivisionError as error:
        raise ToolError(f"{expression} divides by 0") from error


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Fraction(str(number))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _value(left) + _value(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _value(left) - _value(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _value(left) * _value(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return _value(left) / _value(right)
        case _:
            raise ValueError(f"{type(node).__name__} is not arithmetic")
