"""Suggestions for mistyped names in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[object]) -> str:
    """``"; did you mean 'memory'?"`` with the most similar known names, or "" without any."""
    close = get_close_matches(str(name), sorted(map(str, known)), n=2)
    return f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
