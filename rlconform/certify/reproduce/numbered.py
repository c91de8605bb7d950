"""Writes long lists of numbered ids and tags as comprehensions, so that a script stays readable."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

#: Items from which a list is written as a comprehension.
LONG = 32

#: Text, the last digits in it, and text behind them. The bound keeps the search in a text of
#: thousands of digits short.
_NUMBERED = re.compile(r"(.*?)(\d{1,18})(\D*)", re.DOTALL)


def numbered(values: Sequence[Any]) -> str:
    """Return source of a long list of consecutive numbers in ids or tags; "" for any other list.

    >>> numbered([f"r{n}" for n in range(100, 200)])
    "['r' + str(n) for n in range(100, 200)]"
    >>> numbered([{"step": n} for n in range(40)])
    "[{'step': n} for n in range(0, 40)]"
    >>> numbered(["r1", "r2"])
    ''
    """
    if len(values) < LONG:
        return ""
    kinds = {*map(type, values)}
    return _ids(values) if kinds == {str} else _tags(values) if kinds == {dict} else ""


def _ids(ids: Sequence[str]) -> str:
    found = _NUMBERED.fullmatch(ids[0])
    if found is None:
        return ""
    before, behind, first = found[1], found[3], int(found[2])
    end = first + len(ids)
    if ids[-1] != f"{before}{end - 1}{behind}":
        return ""
    if any(text != f"{before}{n}{behind}" for n, text in enumerate(ids, first)):
        return ""
    parts = [repr(before)] * bool(before) + ["str(n)"] + [repr(behind)] * bool(behind)
    return f"[{' + '.join(parts)} for n in range({first}, {end})]"


def _tags(tags: Sequence[dict[Any, Any]]) -> str:
    key, first = next(iter(tags[0].items()), (None, None))
    if type(key) is not str or type(first) is not int:
        return ""
    if any([*row] != [key] or type(row[key]) is not int for row in tags):
        return ""
    if [row[key] for row in tags] != list(range(first, first + len(tags))):
        return ""
    return f"[{{{key!r}: n}} for n in range({first}, {first + len(tags)})]"
