"""From a violation to the line of a script that expects the same of the same call's result.

A value that the check judged is found among what its client calls returned: as the result itself,
as a part of it, or as something simple that follows from the result of the last call. What is not
found there can't be said of plain calls, and the check itself has to decide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rlconform.certify.assertions.values import LAST_CALL
from rlconform.certify.reproduce.call_source import META_FIELDS, ScriptExpression, literal
from rlconform.certify.reproduce.tensor_source import NoSource
from rlconform.certify.scenarios.meta_values import tags_by_id

_RESULT = re.compile(r"\br(\d+)\b")


#: What checks judge of one result, as source with ``{}`` in its place, and as a function of it.
_FOLLOWS: tuple[tuple[str, Callable[[Any], Any]], ...] = (
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
    """What a script expects.

    Attributes:
        source: The lines, to stand in a ``with plane.expecting(...)`` block.
        number: Number of the call whose result is judged.
        claimed: Rows that earlier calls named, by the call's number: what is expected may follow
            from them.
        raised: Numbers of the calls that raised in the check.
    """

    source: str
    number: int
    claimed: Mapping[int, list[Any]]
    raised: frozenset[int] = frozenset()


def expect_return(number: int, claimed: Mapping[int, list[Any]]) -> ScriptExpectation:
    """The call is to return; it raised."""
    return _judged(f"plane.result_of(r{number})", number, claimed)


def expectation_of(
    error: BaseException,
    results: Mapping[str, Any],
    last: tuple[int, Any, bool] | None,
    claimed: Mapping[int, list[Any]],
) -> ScriptExpectation | None:
    """What the violation says of a result; ``None`` where it is of no single one.

    Args:
        error: What the check raised.
        results: Results of its calls by name, such as ``r3``.
        last: Number and result of the call that ended last, and whether it raised.
        claimed: See ``ScriptExpectation``.
    """
    for judgement in reversed(getattr(error, "expectations", ())):
        subject, *rest = judgement.args
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
            return _judged(f"{judgement.function}({shown})", number, claimed)
    return None


def _judged(source: str, number: int, claimed: Mapping[int, list[Any]]) -> ScriptExpectation:
    return ScriptExpectation(
        source, number, {n: ids for n, ids in claimed.items() if n < number and ids}
    )


def _found(subject: Any, results: Mapping[str, Any], last: tuple[int, Any, bool] | None) -> str:
    """An expression of the results that gives ``subject``, or ""."""
    if isinstance(subject, list | dict) or hasattr(subject, "batch_size") or _is_meta(subject):
        for name, result in results.items():
            if result is subject:
                return name
            for part in META_FIELDS if _is_meta(result) else ():
                if getattr(result, part, None) is subject:
                    return f"{name}.{part}"
    if last is None or last[2]:
        return ""
    return _follows(subject, last[1], f"r{last[0]}")


def _follows(subject: Any, result: Any, name: str) -> str:
    for source, of_result in _FOLLOWS:
        try:
            value = of_result(result)
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
