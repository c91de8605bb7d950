"""The source code for a script's values creates equal values, with equal bits and layout."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict, is_tensorclass, tensorclass

from rlconform.certify.assertions.expect import (
    expect_column,
    expect_objects,
    row_difference,
    same_object,
)
from rlconform.certify.assertions.raw_bytes import as_bytes
from rlconform.certify.reproduce.call_source import call_source, literal, tensorclass_like
from rlconform.certify.reproduce.tensor_source import NoSource, unpacked
from rlconform.certify.scenarios.labeled_rows import labeled_column, random_rows
from rlconform.contract import KVBatchMeta
from rlconform.wire import object_array, rows_of


def jagged(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def remade(value: Any) -> Any:
    """The value that the source code for ``value`` creates in a script."""
    names = {
        "torch": torch,
        "np": np,
        "TensorDict": TensorDict,
        "NonTensorData": NonTensorData,
        "NonTensorStack": NonTensorStack,
        "SimpleNamespace": SimpleNamespace,
        "KVBatchMeta": KVBatchMeta,
        "object_array": object_array,
        "labeled_column": labeled_column,
        "tensorclass_like": tensorclass_like,
        "unpacked": unpacked,
    }
    return eval(literal(value), names)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 0, -1.5, float("inf"), 2 + 3j, "it's \"a\"\n\\", b"\x00", [], [1, [None, "a"]],
        {"k": [1, {"n": 2.0}]}, (1, "a"), ["a"] * 100, {1, 2}, frozenset({"a"}), set(),
        np.int64(3), np.float32(1.5), np.bool_(True), np.str_("a"), torch.float16,
    ],
    ids=repr,
)  # fmt: skip
def test_a_plain_value_is_made_again(value: Any) -> None:
    assert same_object(remade(value), value)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32,
        torch.int64, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
        torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (3,), (0,), (2, 0, 3), (2, 1, 2), (40, 20)], ids=str)
def test_a_tensor_is_made_again_bitwise(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    (value,) = random_rows(dtype, [shape])
    assert row_difference(remade(value), value) is None


@pytest.mark.parametrize(
    "bits",
    [0x7FC00000, 0x7FC00001, 0x80000000, 0x7F800000, 0xFF800000],
    ids=["nan", "nan with a payload", "-0.0", "inf", "-inf"],
)
def test_odd_floats_are_made_again_bitwise(bits: int) -> None:
    value = torch.tensor([bits, bits]).to(torch.int32).view(torch.float32)
    assert row_difference(remade(value), value) is None
    pair = value.view(torch.complex64)
    assert row_difference(remade(pair), pair) is None


@pytest.mark.parametrize(
    "view",
    [
        torch.arange(12).reshape(3, 4).T,
        torch.arange(12).reshape(3, 4)[:, 1:3],
        torch.arange(4)[2:],
        torch.arange(3).expand(2, 3),
        torch.arange(12).reshape(3, 4)[::2],
    ],
    ids=["transposed", "columns", "offset", "expanded", "every_second"],
)
def test_a_view_keeps_its_strides_and_what_lies_behind_it(view: torch.Tensor) -> None:
    copy = remade(view)
    assert torch.equal(copy, view)
    assert (copy.stride(), copy.storage_offset()) == (view.stride(), view.storage_offset())
    assert copy.untyped_storage().nbytes() == view.untyped_storage().nbytes()


def test_a_conjugate_stays_one() -> None:
    value = torch.tensor([1 + 2j, 3j], dtype=torch.complex64).conj()
    assert remade(value).is_conj()
    assert torch.equal(as_bytes(remade(value)), as_bytes(value))


def test_a_column_that_wants_a_gradient_still_does() -> None:
    assert remade(torch.ones(2, requires_grad=True)).requires_grad
    assert remade(jagged([torch.ones(2), torch.ones(1)]).requires_grad_()).requires_grad


def test_a_large_tensor_of_one_value_is_short() -> None:
    value = torch.ones(100, 7, dtype=torch.bfloat16)
    assert row_difference(remade(value), value) is None
    assert len(literal(value)) < 100


@pytest.mark.parametrize(
    "values",
    [
        [f"u0_g{n}" for n in range(7, 99)],
        [f"{n}" for n in range(50)],
        [f"step {n} 'of' \n" for n in range(95, 150)],
        [{"step": n} for n in range(-20, 20)],
    ],
    ids=["ids", "numbers", "texts", "tags"],
)
def test_long_lists_of_consecutive_numbers_are_short(values: list[Any]) -> None:
    assert remade(values) == values
    assert len(literal(values)) < 80


@pytest.mark.parametrize(
    "values",
    [
        [f"r{n:03}" for n in range(60)],
        [f"r{n}" for n in [*range(30), 99, *range(31, 60)]],
        [f"r{n}" for n in range(59, -1, -1)],
        ["one"] * 40,
        [{"step": n} for n in [*range(30), 7, *range(31, 60)]],
        [{"step": bool(n)} for n in range(2)] * 20,
        [{"step": n, "more": n} for n in range(40)],
        [{} for _ in range(40)],
    ],
    ids=["padded", "gap", "down", "words", "tag_gap", "bools", "two_tags", "no_tags"],
)
def test_other_long_lists_are_made_again(values: list[Any]) -> None:
    assert remade(values) == values
    assert list(map(type, values)) == list(map(type, remade(values)))


@pytest.mark.parametrize("dtype", [torch.int16, torch.int64])
def test_a_large_tensor_of_consecutive_numbers_is_short(dtype: torch.dtype) -> None:
    value = torch.arange(-500, 30_000, dtype=dtype).reshape(-1, 100)
    assert row_difference(remade(value), value) is None
    assert len(literal(value)) < 100


def test_rows_that_say_whose_they_are_are_made_by_the_call_that_makes_them() -> None:
    ids = [f"r{n}" for n in range(48)]
    for column in (labeled_column("p", ids[:9], "x"), labeled_column("p", ids, "x", 3, width=40)):
        assert literal(column).startswith("labeled_column('p', ['r")
        expect_column(TensorDict({"x": remade(column)}, [len(column)]), "x", list(column))
    uneven = labeled_column("p", ids, "x")
    assert uneven.is_nested
    assert literal(uneven).startswith("labeled_column(")
    expect_column(TensorDict({"x": remade(uneven)}, [48]), "x", rows_of(uneven))


def test_equally_long_jagged_rows_stay_jagged() -> None:
    rows = list(labeled_column("p", ["a", "b"], "x"))
    assert remade(jagged(rows)).is_nested


@pytest.mark.parametrize(
    "value",
    [
        torch.rand(1000, 100),
        torch.empty(1 << 20, dtype=torch.uint8)[:4],
        {"a": [lambda: 0]},
        np.empty((2, 2), dtype=object),
    ],
    ids=["large", "view_of_much", "function", "objects_2d"],
)
def test_what_has_no_source_is_told_and_never_a_repr(value: Any) -> None:
    with pytest.raises(NoSource):
        literal(value)
    line = call_source(3, "client", "put_samples", (), {"fields": value}, {})
    assert line.startswith("# r3 = attempt(client.put_samples")
    ast.parse(line)


@pytest.mark.parametrize(
    "rows",
    [
        [torch.arange(2), torch.arange(0), torch.arange(3)],
        [torch.arange(0), torch.arange(0)],
        [torch.ones(1, 2), torch.ones(3, 2)],
    ],
)
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
def test_a_nested_column_is_made_again(rows: list[torch.Tensor], layout: torch.layout) -> None:
    copy = remade(torch.nested.nested_tensor(rows, layout=layout))
    assert copy.is_nested
    assert copy.layout is layout
    assert [row_difference(*pair) for pair in zip(copy.unbind(), rows, strict=True)] == [
        None
    ] * len(rows)


def test_a_jagged_column_with_holes_keeps_them() -> None:
    value: Any = torch.nested.nested_tensor_from_jagged(
        torch.arange(9), torch.tensor([0, 4, 9]), torch.tensor([2, 5])
    )
    copy = remade(value)
    assert copy.lengths().tolist() == [2, 5]
    assert copy.values().tolist() == value.values().tolist()


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr"])
def test_a_sparse_tensor_is_made_again(layout: str) -> None:
    value = getattr(torch.eye(3), layout)()
    copy = remade(value)
    assert copy.layout is value.layout
    assert torch.equal(copy.to_dense(), torch.eye(3))


OBJECTS = ["text", None, {"turns": [{"role": "user", "tokens": torch.arange(2)}, (1, 0.5)]}]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (lambda: object_array(OBJECTS), np.ndarray),
        (lambda: NonTensorStack(*[NonTensorData(value) for value in OBJECTS]), None),
    ],
    ids=["array", "stack"],
)
def test_a_batch_is_made_again(column: Callable[[], Any], kind: type | None) -> None:
    rows = [torch.arange(1), torch.arange(3), torch.arange(2)]
    batch = TensorDict({"x": torch.ones(3, 2), "y": jagged(rows), "m": column()}, batch_size=[3])
    copy = remade(batch)
    assert copy.batch_size == (3,)
    expect_column(copy, "x", list(torch.ones(3, 2)))
    expect_column(copy, "y", rows)
    expect_objects(copy, "m", OBJECTS)
    assert type(copy.get("m")) is type(batch.get("m"))
    if kind is not None:  # a numpy array of objects is put as such an array again
        assert type(copy.get("m").data) is kind


def test_strings_of_numpy_are_made_again() -> None:
    copy = remade(TensorDict({"m": np.array(["a", "bc"])}, batch_size=[2]))
    assert copy.get("m").data.tolist() == ["a", "bc"]
    assert copy.get("m").data.dtype == np.dtype("<U2")


def test_a_nested_batch_is_made_again() -> None:
    nested = TensorDict({"deep": torch.ones(3)}, batch_size=[3])
    copy = remade(TensorDict({"y": nested}, batch_size=[3]))
    assert copy["y", "deep"].tolist() == [1, 1, 1]


@tensorclass
class Images:
    """A column of a separate class."""

    pixels: torch.Tensor


def test_a_tensorclass_is_made_again() -> None:
    held = TensorDict({"y": Images(pixels=torch.ones(3, 2), batch_size=[3])}, batch_size=[3])
    copy = remade(held).get("y")
    assert is_tensorclass(copy)
    assert type(copy).__name__ == "Images"
    assert copy.pixels.tolist() == [[1, 1]] * 3


def test_a_meta_is_made_again_or_named() -> None:
    meta = KVBatchMeta("p", "t", ["a"], ["x"], [3], {"pad": 8}, [{"v": 1}])
    assert remade(meta) == meta
    assert literal(meta, {id(meta): "r3"}) == "r3"
    assert literal(KVBatchMeta("p", "t", ["a"]), {id(meta): "r3"}) != "r3"


@pytest.mark.parametrize("answer", [None, True, False, 0])
def test_a_value_that_many_share_is_never_named(answer: Any) -> None:
    """``blocking=True`` is not an earlier result, although Python has only one ``True``."""
    assert literal(answer, {id(answer): "r1"}) == repr(answer)


def test_a_number_array_is_made_again() -> None:
    copy = remade(np.array([1, 2], dtype=np.int16))
    assert (copy.tolist(), copy.dtype) == ([1, 2], np.dtype(np.int16))
