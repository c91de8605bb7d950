"""Checks compare metas and statuses by value, and report unusual types once."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from rlconform.backends.memory import MemoryClient
from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.plugin.return_types import remarks_on_types
from rlconform.certify.scenarios.normalize_metas import meta_of, status_of
from rlconform.contract import KVBatchMeta
from rlconform.selftest.conforming_planes import NestsFields, tuple_meta

META = KVBatchMeta("p", "t", ["a", "b"], ["x"], [1, 2], {}, [{"n": 1}, {}])


def test_a_meta_of_exact_types_is_returned_as_it_is() -> None:
    assert meta_of(META, "claim_meta") is META


def test_a_meta_of_tuples_has_the_same_values() -> None:
    assert meta_of(tuple_meta(META), "claim_meta") == META


def test_a_meta_that_names_no_lengths_and_no_tags_stays_so() -> None:
    bare = replace(META, fields=None, sequence_lengths=None, tags=None)
    assert meta_of(tuple_meta(bare), "put_samples") == bare


@pytest.mark.parametrize(
    "wrong",
    [
        {"sample_ids": "ab"},
        {"sample_ids": (1, 2)},
        {"sample_ids": {"a": 1, "b": 2}},
        {"sequence_lengths": (1,)},
        {"tags": ({},)},
        {"tags": (1, 2)},
    ],
    ids=str,
)
def test_wrong_values_are_violations(wrong: dict[str, object]) -> None:
    with pytest.raises(ContractViolation, match="claim_meta"):
        meta_of(SimpleNamespace(**vars(tuple_meta(META)) | wrong), "claim_meta")


@pytest.mark.parametrize("answer", [True, False, np.True_, np.False_])
def test_a_status_is_a_bool(answer: object) -> None:
    assert status_of(answer) is bool(answer)


@pytest.mark.parametrize("answer", [None, 1, "True", [True]])
def test_no_other_answer_is_a_status(answer: object) -> None:
    with pytest.raises(ContractViolation):
        status_of(answer)


def test_the_preflight_names_each_unusual_type() -> None:
    said = remarks_on_types(NestsFields({}, True))  # type: ignore[arg-type] - its metas hold tuples
    assert "put_samples gives sample_ids as tuple, not list" in said
    assert "claim_meta gives tags as tuple, not list" in said
    assert "check_consumption_status returns numpy.bool, not bool" in said


def test_the_preflight_accepts_exact_types() -> None:
    assert remarks_on_types(MemoryClient({}, True)) == []
