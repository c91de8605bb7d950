"""Calls that may hang alone are kinds of their own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rlconform.certify.recording.call_kind import call_kind

MANY = [f"r{n}" for n in range(1_000)]


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        ({"blocking": False}, "claim_meta, not blocking"),
        ({"blocking": True}, "claim_meta, blocking"),
        ({}, "claim_meta, blocking"),
    ],
)
def test_claims_that_block_are_a_kind_of_their_own(call: dict[str, bool], kind: str) -> None:
    assert call_kind("claim_meta", [], call) == kind


@pytest.mark.parametrize(
    ("method", "args", "kwargs"),
    [
        ("put_samples", [], {"sample_ids": MANY}),
        ("get_samples", [MANY, "p"], {}),
        ("clear_samples", [MANY], {"partition_id": "p"}),
        ("get_data", [SimpleNamespace(sample_ids=MANY)], {}),
        ("get_data", [], {"meta": SimpleNamespace(sample_ids=MANY)}),
    ],
)
def test_calls_of_many_rows_are_a_kind_of_their_own(
    method: str, args: list[Any], kwargs: dict[str, Any]
) -> None:
    assert call_kind(method, args, kwargs) == f"{method} of 1,000 rows or more"


@pytest.mark.parametrize(
    ("method", "kwargs"),
    [
        ("put_samples", {"sample_ids": MANY[1:]}),
        ("put_samples", {"sample_ids": 5}),
        ("get_samples", {"sample_ids": "a" * 2000}),
        ("get_data", {"meta": None}),
        ("clear_samples", {"sample_ids": None}),
        ("close", {}),
    ],
)
def test_other_calls_are_known_by_their_method(method: str, kwargs: dict[str, Any]) -> None:
    assert call_kind(method, [], kwargs) == method
