"""PUT-21, 25: objects and leaves that are no columns come back exactly, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, tensorclass

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    expect_equal,
    expect_objects,
    is_rejected,
    leaning_on,
    tensors_equal,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.recording.shorten import shorten
from rlconform.certify.scenarios.labeled_rows import labeled_column
from rlconform.certify.scenarios.partition import (
    PartitionUnderTest,
    batch_of,
)
from rlconform.certify.scenarios.refusable_objects import (
    put_or_leave_nothing,
)
from rlconform.contract import KVBatchMeta, Target
from rlconform.wire import object_array

IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: A line with every kind of line end, and characters at which some formats end a text.
LINE = "one\r\ntwo\rthree\nfour\x00\x1a\u2028 "

COLUMNS: dict[str, list[Any]] = {
    "strings": ["", "text", "ünïcode 文"],
    "with_none": [None, "text", None],
    "none_between": ["first", None, "last"],
    "dicts": [{}, {"role": "user", "content": "hi"}, {"n": 1, "f": 0.5, "b": True, "none": None}],
    "lists": [[], [1, 2, 3], ["a", None, [0.5, {"k": []}]]],
    "mixed": ["text", {"a": [1]}, None],
    "odd_one_between": [{"a": 1}, "text", {"b": 2}],
    "unlike_keys": [[{"role": "a"}, {"role": "b", "tool": 1}], [{"role": "c", "n": None}], []],
    "numbers_as_keys": [{1: "a"}, {151643: -0.25, -1: {0: []}}, [{7: None}]],
    "lists_of_bools": [[True, False], [], [False, True, True]],
    "long_lists": [[True, False] * 40, [1, True, 0] * 40, [0.0, 1, -0.0] * 40],
    "bools_beside_numbers": [[True, 1, 1.0], [0, False], [0.0]],
    "texts_that_end_in_zero": ["a\x00", "\x00", "b\x00\x00"],
    "texts_that_end_in_space": ["a ", " ", "b\n"],
    "whole_numbers": [0, 2**63 - 1, -(2**63)],
    "whole_and_broken_numbers": [1, 2.0, 0.5],
    "numbers_and_none": [1, None, 3],
    "lists_of_one_length": [[1, 2], [3, 4], [5, 6]],
    "lists_of_numbers": [[1, 2.0], [3.5, 4], [True, 0]],
    "large_numbers": [2**63 - 1, {"seed": -(2**63)}, [2**53 + 1]],
    "long_texts": ["a" * 70_000, {"content": "ü" * 70_000}, ["", "b" * 70_000]],
    "texts_that_collate": ["Answer", "answer", "answer "],
    "keys_that_collate": [{"é": "É"}, {"e\u0301": "E\u0301"}, {"É": "e"}],
    "line_ends": [LINE, {"content": LINE}, ["a", LINE]],
    "long_line_ends": [LINE * 4000, {"content": LINE * 4000}, ["a", LINE * 5000]],
    "message_logs": [[{"role": "user", "content": str(i), "turns": [i, None]}] for i in range(3)],
}


@pytest.fixture
def part(new_partition: Callable[..., PartitionUnderTest]) -> PartitionUnderTest:
    """Return a partition with a tensor column and an object column."""
    return new_partition(fields=["x", "log"])


def as_stack(values: list[Any]) -> NonTensorStack:
    return NonTensorStack(*[NonTensorData(value) for value in values])


@requirement("PUT-21")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside_tensors"])
@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_object_column_is_exact_or_refused(
    part: PartitionUnderTest, target: Target, values: list[Any], beside: bool
) -> None:
    tensors = {"x": torch.arange(3)} if beside else {}
    if put_or_leave_nothing(part, target, IDS, **tensors, log=object_array(values)):
        _expect_all(part, values, tensors)


@requirement("PUT-21")
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside_tensors"])
@pytest.mark.parametrize("values", COLUMNS.values(), ids=COLUMNS)
def test_a_non_tensor_stack_is_exact_or_refused(
    part: PartitionUnderTest, values: list[Any], beside: bool
) -> None:
    """The contract only names numpy object arrays, so a plane may refuse this tensordict type."""
    tensors = {"x": torch.arange(3)} if beside else {}
    try:
        part.put(IDS, **tensors, log=as_stack(values))
    except TypeError:
        with leaning_on("PUT-16"):
            for field in (*tensors, "log"):
                part.expect_absent(IDS, field)
    else:
        _expect_all(part, values, tensors)


def _expect_all(
    part: PartitionUnderTest, values: list[Any], tensors: Mapping[str, torch.Tensor]
) -> None:
    expect_objects(part.get(IDS, "log"), "log", values)
    expect_objects(part.get(IDS[::-1], *tensors, "log"), "log", values[::-1])
    if tensors:
        part.expect_rows(IDS, x=list(tensors["x"]))


@requirement("PUT-21")
@pytest.mark.parametrize("times", [1, 32])
def test_equal_objects_of_unlike_types_come_back(
    new_partition: Callable[..., PartitionUnderTest], target: Target, times: int
) -> None:
    """Planes that store each distinct value once compare with ``==``, for which 0 equals False."""
    values = [0, False, 0.0, -0.0, 1, True, 1.0] * times
    part = new_partition(fields=["log"], num_samples=len(values))
    ids = [f"r{n}" for n in range(len(values))]
    if put_or_leave_nothing(part, target, ids, log=object_array(values)):
        expect_objects(part.get(ids, "log"), "log", values)


@requirement("PUT-21")
def test_five_hundred_objects_come_back(
    new_partition: Callable[..., PartitionUnderTest], target: Target
) -> None:
    part = new_partition(fields=["log"], num_samples=500)
    ids = [f"r{i}" for i in range(500)]
    values = [{"i": i, "text": "t" * (i % 7)} for i in range(500)]
    if put_or_leave_nothing(part, target, ids, log=object_array(values)):
        expect_objects(part.get(ids, "log"), "log", values)
        meta = KVBatchMeta(part.id, None, ids[::-1], fields=["log"])
        expect_objects(part.get_data(meta), "log", values[::-1])


@requirement("PUT-21")
def test_objects_put_one_by_one_are_read_together(part: PartitionUnderTest, target: Target) -> None:
    values = ["text", {"a": [1]}, None]
    for sample_id, value in zip(IDS, values, strict=True):
        if not put_or_leave_nothing(part, target, [sample_id], log=object_array([value])):
            return
    expect_objects(part.get(IDS[::-1], "log"), "log", values[::-1])


@requirement("PUT-21")
def test_one_object_of_several_is_read_alone(part: PartitionUnderTest, target: Target) -> None:
    values = ["text", {"a": [1]}, None]
    if put_or_leave_nothing(part, target, IDS, log=object_array(values)):
        for sample_id, value in zip(IDS, values, strict=True):
            expect_objects(part.get([sample_id], "log"), "log", [value])


@requirement("PUT-13")
def test_the_newest_objects_are_read(part: PartitionUnderTest, target: Target) -> None:
    if put_or_leave_nothing(part, target, IDS, log=object_array(["a", {"n": 1}, None])):
        newer = [{"m": 2}, "b", {}]
        part.put(IDS, log=object_array(newer))
        expect_objects(part.get(IDS, "log"), "log", newer)


@requirement("PUT-14")
def test_the_receipt_names_object_columns(part: PartitionUnderTest, target: Target) -> None:
    columns = {"x": torch.zeros(3), "log": object_array(["a", None, {}])}
    if put_or_leave_nothing(part, target, IDS, **columns):
        receipt = part.put([f"other_{i}" for i in IDS], **columns)
        expect_equal(sorted(receipt.fields or []), ["log", "x"], "fields written by this put")


#: Objects beyond the capability: accepted exactly or refused, but never corrupted.
OTHER_COLUMNS: dict[str, list[Any]] = {
    "bytes": [b"", b"\x00a", b"b"],
    "text_between_numbers": [1, "text", 2],
    "text_between_tensors": [torch.ones(2), "text", torch.zeros(3)],
    "tensor_between_texts": ["a", torch.ones(2), "b"],
}


@requirement("PUT-21")
@pytest.mark.parametrize("values", OTHER_COLUMNS.values(), ids=OTHER_COLUMNS)
def test_objects_beyond_the_capability_are_exact_or_refused(
    part: PartitionUnderTest, values: list[Any]
) -> None:
    if accepts(part, object_array(values)):
        expect_objects(part.get(IDS, "x", "log"), "log", values)
        part.expect_rows(IDS, x=list(torch.arange(3)))


@requirement("PUT-21")
def test_a_text_array_is_exact_or_refused(part: PartitionUnderTest) -> None:
    texts = np.array(["a", "", "文"])
    if accepts(part, texts):
        batch = part.get(IDS, "log")
        try:
            expect_objects(batch, "log", list(texts))  # numpy strings, as they were put
        except ContractViolation:
            expect_objects(batch, "log", texts.tolist())  # or plain ones


def accepts(part: PartitionUnderTest, column: Any) -> bool:
    """Put a column that planes may refuse; return whether it was accepted."""
    try:
        part.put(IDS, x=torch.arange(3), log=column)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - any refusal will do
        with leaning_on("PUT-16"):
            part.expect_absent(IDS, "x")
            part.expect_absent(IDS, "log")
        return False
    return True


# -- PUT-25: leaves that are not columns ----------------------------------------------------------


@tensorclass
class Images:
    """A tensorclass column, which frameworks use for images."""

    pixels: torch.Tensor


BAD_LEAVES: dict[str, Callable[[], object]] = {
    "nested_tensordict": lambda: TensorDict({"deep": torch.ones(3)}, batch_size=[3]),
    "tensorclass": lambda: Images(pixels=torch.ones(3, 2), batch_size=[3]),
    "sparse": lambda: torch.eye(3).to_sparse(),
}


@requirement("PUT-25")
@pytest.mark.parametrize("make", BAD_LEAVES.values(), ids=BAD_LEAVES)
def test_a_leaf_that_is_no_column_is_rejected_or_exact(
    part: PartitionUnderTest, make: Callable[[], object]
) -> None:
    leaf, batch = make(), batch_of({"x": labeled_column(part.id, IDS, "x", 1)}, len(IDS))
    batch["y"] = leaf
    if is_rejected(lambda: part.put_batch(IDS, batch)):
        with leaning_on("PUT-16"):
            part.expect_absent(IDS)
        return
    expected = (
        "a leaf that is no column to be rejected, or to come back exactly (if it is left out, the "
        "model never sees it)"
    )
    try:
        got = part.get(IDS, "x", "y").get("y", None)
    except ContractViolation:
        raise
    except Exception as error:
        failure = f"a put that was accepted, and reading it raised {type(error).__name__}: {error}"
        raise ContractViolation(expected, shorten(failure)) from error
    expect(same_leaf(got, leaf), expected, f"a put that was accepted, and instead {got!r}")


def same_leaf(got: object, leaf: object) -> bool:
    """Return whether the leaf read has the type and the values of the leaf put."""
    if isinstance(leaf, torch.Tensor):
        if not isinstance(got, torch.Tensor) or got.dtype != leaf.dtype:
            return False
        dense = got.to_dense() if got.layout is not torch.strided else got
        return tensors_equal(dense, leaf.to_dense())
    if type(got) is not type(leaf):
        return False
    inner, outer = (one.to_tensordict() for one in (got, leaf))  # type: ignore[attr-defined]
    return inner.keys() == outer.keys() and all(same_leaf(inner[k], outer[k]) for k in outer.keys())  # noqa: SIM118


@requirement("PUT-25")
def test_a_nested_tensor_of_strided_layout_is_rejected_or_exact(part: PartitionUnderTest) -> None:
    rows = [torch.ones(n) for n in (1, 2, 3)]
    batch = batch_of({"x": labeled_column(part.id, IDS, "x", 1)}, len(IDS))
    batch["y"] = torch.nested.nested_tensor(rows, layout=torch.strided)
    try:
        part.put_batch(IDS, batch)
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - any refusal will do
        with leaning_on("PUT-16"):
            part.expect_absent(IDS)
    else:
        part.expect_rows(IDS, y=rows)
