"""``parse``: reads Python source; threads may call it at the same time."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()


def parse(source: str) -> ast.Module:
    """Return the syntax tree of a module.

    Python 3.11 raises ``SystemError`` now and then if two threads parse at once.
    """
    with _ONE_AT_A_TIME:
        return ast.parse(source)
