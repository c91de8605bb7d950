"""Puts of object columns that a plane may refuse.

Without the capability ``objects`` it may refuse any; every plane may refuse values of other types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from rlconform.certify.assertions.expect import ContractViolation, leaning_on
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Target

T = TypeVar("T")


def unless_refused(target: Target, put: Callable[[], T]) -> T | None:
    """Return the result of ``put``; None if the plane refused it and declares no ``objects``."""
    try:
        return put()
    except TypeError as refusal:
        if target.declares("objects"):
            raise ContractViolation(
                "the declared capability 'objects'", f"TypeError: {refusal}", leans_on=("PUT-21",)
            ) from refusal
        return None


def put_unless_refused(
    part: PartitionUnderTest, target: Target, ids: Sequence[str], **columns: Any
) -> bool:
    """Put the columns; return whether the plane accepted them."""
    return unless_refused(target, lambda: part.put(ids, **columns)) is not None


def put_or_leave_nothing(
    part: PartitionUnderTest, target: Target, ids: Sequence[str], **columns: Any
) -> bool:
    """Put the columns and return whether the plane accepted them; a refusal must store nothing."""
    if put_unless_refused(part, target, ids, **columns):
        return True
    _expect_nothing(part, ids, columns)
    return False


def put_other_types_or_leave_nothing(
    part: PartitionUnderTest, ids: Sequence[str], **columns: Any
) -> bool:
    """Put the columns, of which PUT-28 allows a refusal; then as ``put_or_leave_nothing``."""
    try:
        part.put(ids, **columns)
    except TypeError:
        _expect_nothing(part, ids, columns)
        return False
    return True


def _expect_nothing(part: PartitionUnderTest, ids: Sequence[str], fields: Iterable[str]) -> None:
    with leaning_on("PUT-16"):
        for field in fields:
            part.expect_absent(ids[:3], field)
