"""Turns a violation into a line of a script that expects the same of the same call's result.

The value that failed the assertion is searched for among the results of the check's client calls:
it is a result, a part of one, or a simple function of the last one. If it is not found, the script
expects nothing, and runs the check instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlconform.certify.assertions.expect import LAST_CALL
from rlconform.certify.reproduce.call_source import META_FIELDS, ScriptExpression, literal
from rlconform.certify.reproduce.tensor_source import NoSource
from rlconform.certify.scenarios.normalize_metas import tags_by_id

_RESULT = re.compile(r"\br(\d+)\b")


#: What checks derive from a result: as source, with ``{}`` for the result, and as a function of it.
_DERIVED: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("{}", lambda result: result),
    ("{}.sample_ids", lambda result: result.sample_ids),
    ("{}.tags", lambda result: result.tags),
    ("{}.fields", lambda result: result.fields),
    ("{}.sequence_lengths", lambda result: result.sequence_lengths),
    ("{}.partition_id", lambda result: result.partition_id),
    ("{}.task_name", lambda result: result.task_name),
    ("sorted({}.sample_ids)", lambda result: sorted(result.sample_ids)),
    ("tags_by_id({})", tags_by_id),
    ("sorted(map(str, {}.keys()))", lambda result: sorted(map(str, result.keys()))),
    ("tuple({}.batch_size)", lambda result: tuple(result.batch_size)),
)


@dataclass(frozen=True)
class ScriptExpectation:
    """What a script expects of the result of one call.

    Attributes:
        source: The line inside the script's ``with plane.expecting(...)`` block.
        number: Number of the call.
        claimed: Row ids that earlier calls returned, by number of the call. The expectation may
            depend on them.
        raised: Numbers of the calls that raised in the check.
    """

    source: str
    number: int
    claimed: Mapping[int, list[Any]]
    raised: frozenset[int] = frozenset()


def expect_return(number: int, claimed: Mapping[int, list[Any]]) -> ScriptExpectation:
    """Expect the call, which raised in the check, to return."""
    return _expectation(f"plane.result_of(r{number})", number, claimed)


def expectation_of(
    error: BaseException,
    results: Mapping[str, Any],
    last: tuple[int, Any, bool] | None,
    claimed: Mapping[int, list[Any]],
) -> ScriptExpectation | None:
    """What the violation expects of one result; ``None`` if that result is not found.

    Args:
        error: What the check raised.
        results: Results of its calls by name, such as ``r3``.
        last: Number and result of the call that ended last, and whether it raised.
        claimed: See ``ScriptExpectation``.
    """
    for expectation in reversed(getattr(error, "expectations", ())):
        subject, *rest = expectation.args
        if subject is LAST_CALL:
            if last is None or last[2]:
                continue
            number, found = last[0], f"lambda: plane.result_of(r{last[0]})"
        else:
            found = _found(subject, results, last)
            if not found:
                continue
            number = _number_in(found)
        with suppress(NoSource):
            shown = ", ".join(literal(arg) for arg in [ScriptExpression(found), *rest])
            return _expectation(f"{expectation.function}({shown})", number, claimed)
    return None


def _expectation(source: str, number: int, claimed: Mapping[int, list[Any]]) -> ScriptExpectation:
    return ScriptExpectation(
        source, number, {n: ids for n, ids in claimed.items() if n < number and ids}
    )


def _found(subject: Any, results: Mapping[str, Any], last: tuple[int, Any, bool] | None) -> str:
    """An expression of the results whose value is ``subject``; "" if there is none."""
    if isinstance(subject, list | dict) or hasattr(subject, "batch_size") or _is_meta(subject):
        for name, result in results.items():
            if result is subject:
                return name
            for part in META_FIELDS if _is_meta(result) else ():
                if getattr(result, part, None) is subject:
                    return f"{name}.{part}"
    if last is None or last[2]:
        return ""
    return _derived(subject, last[1], f"r{last[0]}")


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


def _number_in(found: str) -> int:
    name = _RESULT.search(found)
    assert name is not None
    return int(name[1])


def _is_meta(value: Any) -> bool:
    return hasattr(value, "sample_ids")
