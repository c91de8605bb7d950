"""Turns a violation into a line of a script that expects the same of the same call's result.

The value that failed the assertion is searched for in the results of the check's client calls: a
whole result, a part of a result, or a simple function of the last result. If it is not found, the
script expects nothing, and runs the check instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from rlconform.certify.assertions.expect import LAST_CALL
from rlconform.certify.reproduce.call_source import META_FIELDS, ScriptExpression, literal
from rlconform.certify.reproduce.tensor_source import NoSource
from rlconform.certify.scenarios.normalize_metas import tags_by_id

#: What checks derive from a result: as source, with ``{}`` for the result, and as a function of it.
_DERIVED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("{}", lambda result: result),
    *((f"{{}}.{name}", attrgetter(name)) for name in META_FIELDS),
    ("sorted({}.sample_ids)", lambda result: sorted(result.sample_ids)),
    ("tags_by_id({})", tags_by_id),
    ("sorted(map(str, {}.keys()))", lambda result: sorted(map(str, result.keys()))),
    ("tuple({}.batch_size)", lambda result: tuple(result.batch_size)),
)


@dataclass(frozen=True)
class ScriptExpectation:
    """What a script expects of the result of one call."""

    source: str  # the line inside the script's ``with plane.expecting(...)`` block
    number: int  # of the call
    claimed: Mapping[int, list[Any]]  # row ids that earlier calls returned, by number of the call
    raised: frozenset[int] = frozenset()  # numbers of the calls that raised in the check


def expectation_of(
    error: BaseException, results: Mapping[int, Any], last: tuple[int, Any, bool] | None
) -> tuple[str, int] | None:
    """Return what the violation expects of a result, as source, and the number of its call.

    ``results`` has the check's results by number of the call; ``last`` has number and result of the
    call that ended last, and whether it raised. Returns ``None`` if the result is not found.
    """
    if last is not None and last[2]:
        last = None
    for expectation in reversed(getattr(error, "expectations", ())):
        subject, *rest = expectation.args
        if subject is LAST_CALL:
            found = last and (f"lambda: plane.result_of(r{last[0]})", last[0])
        else:
            found = _found(subject, results, last)
        with suppress(NoSource):
            if found:
                shown = ", ".join(literal(arg) for arg in [ScriptExpression(found[0]), *rest])
                return f"{expectation.function}({shown})", found[1]
    return None


def _found(
    subject: Any, results: Mapping[int, Any], last: tuple[int, Any, bool] | None
) -> tuple[str, int] | None:
    """Return an expression of a result that equals ``subject``, and the number of its call."""
    if isinstance(subject, list | dict) or hasattr(subject, "batch_size") or _is_meta(subject):
        for number, result in results.items():
            if result is subject:
                return f"r{number}", number
            for part in META_FIELDS if _is_meta(result) else ():
                if getattr(result, part, None) is subject:
                    return f"r{number}.{part}", number
    derived = _derived(subject, last[1], f"r{last[0]}") if last else ""
    return (derived, last[0]) if last and derived else None


def _derived(subject: Any, result: Any, name: str) -> str:
    for source, derive in _DERIVED:
        try:
            value = derive(result)
            same = type(value) is type(subject) and bool(value == subject)
        except Exception:  # noqa: BLE001 - results are of many types, and most lack most of these
            continue
        if same:
            return source.format(name)
    return ""


def _is_meta(value: Any) -> bool:
    return hasattr(value, "sample_ids")
