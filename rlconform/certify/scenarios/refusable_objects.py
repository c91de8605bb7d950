"""Puts of object columns, which a plane without the capability ``objects`` may refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import Target


def put_unless_refused(
    part: PartitionUnderTest, target: Target, ids: Sequence[str], **columns: Any
) -> bool:
    """Put the columns; return whether the plane accepted them.

    Raises:
        ContractViolation: A plane that declares ``objects`` refused them.
    """
    try:
        part.put(ids, **columns)
    except TypeError as refusal:
        if target.declares("objects"):
            raise ContractViolation(
                "the declared capability 'objects'", f"TypeError: {refusal}", leans_on=("PUT-21",)
            ) from refusal
        return False
    return True
