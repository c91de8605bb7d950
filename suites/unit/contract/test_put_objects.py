"""PUT-21: object columns come back exactly, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import NonTensorData, NonTensorStack

from rlconform.certify.expect import ContractViolation, expect_objects
from rlconform.certify.marks import requirement
from rlconform.certify.partition import Partition, object_array
from rlconform.contract import Target

IDS = ["u0_g0", "u0_g1", "u1_g0"]

COLUMNS: dict[str, list[Any]] = {
    "strings": ["", "text", "ünïcode 文"],
    "with_none": [None, "text", None],
    "dicts": [{}, {"role": "user", "content": "hi"}, {"n": 1, "f": 0.5, "b": True, "none": None}],
    "lists": [[], [1, 2, 3], ["a", None, [0.5, {"k": []}]]],
    "mixed": ["text", {"a": [1]}, None],
    "message_logs": [[{"role": "user", "content": str(i), "turns": [i, None]}] for i in range(3)],
}


def as_stack(values: list[Any]) -> NonTensorStack:
    return NonTensorStack(*[NonTensorData(value) for value in values])


@requirement("PUT-21")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside_tensors"])
@pytest.mark.parametrize("carrier", [object_array, as_stack], ids=["ndarray", "stack"])
@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_object_column_is_exact_or_refused(
    part: Partition,
    target: Target,
    values: list[Any],
    carrier: Callable[[list[Any]], Any],
    beside: bool,
) -> None:
    tensors = {"x": torch.arange(3)} if beside else {}
    try:
        part.put(IDS, log=carrier(values), **tensors)
    except TypeError as refusal:
        if target.declares("objects"):
            raise ContractViolation(
                "the declared capability 'objects'", f"TypeError: {refusal}"
            ) from refusal
        for field in (*tensors, "log"):
            part.expect_absent(IDS, field)
        return
    expect_objects(part.get(IDS, "log"), "log", values)
    expect_objects(part.get(IDS[::-1], *tensors, "log"), "log", values[::-1])
    if beside:
        part.expect_rows(IDS, x=list(torch.arange(3)))


@requirement("PUT-21")
def test_five_hundred_objects(part: Partition, target: Target) -> None:
    ids = [f"r{i}" for i in range(500)]
    values = [{"i": i, "text": "t" * (i % 7)} for i in range(500)]
    try:
        part.put(ids, log=object_array(values))
    except TypeError as refusal:
        if target.declares("objects"):
            raise ContractViolation(
                "the declared capability 'objects'", f"TypeError: {refusal}"
            ) from refusal
        part.expect_absent(ids[:1], "log")
        return
    expect_objects(part.get(ids, "log"), "log", values)
