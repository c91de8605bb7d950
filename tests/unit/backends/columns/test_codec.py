"""The codec of plain values, tested alone because in ``objects`` pickle would hide its failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest
import torch

from rlconform.backends.columns import codec

EXACT: dict[str, Any] = {
    "none": None,
    "integer beyond 64 bits": 2**80,
    "negative integer beyond 64 bits": -(2**80),
    "half a surrogate pair": "\ud83d",
    "half a surrogate pair as a key": {"\ud83d": 1},
    "number as a key": {1: "a", None: "b", (1, 2): "c"},
    "tuple": (1, (2, [3])),
    "set": {1, "a"},
    "frozenset": frozenset({1, "a"}),
    "complex": complex(1.5, -2.0),
    "deep": {"turns": [("user", {"tokens": [1, 2]}), {3}]},
}
ARRAYS: dict[str, np.ndarray] = {
    "numbers": np.arange(6, dtype=np.int16).reshape(2, 3),
    "big endian": np.arange(3, dtype=">i4"),
    "transposed": np.arange(6.0).reshape(2, 3).T,
    "one value": np.array(7.5, dtype=np.float32),
    "empty": np.empty((0, 3), dtype=np.uint8),
    "dates": np.array(["2026-01-01", "NaT"], dtype="datetime64[D]"),
    "texts": np.array(["a", "bcd"]),
    "objects": np.array([[None, "a"], [("b",), {"c": 1}]], dtype=object),
    "no objects": np.empty((2, 0), dtype=object),
}
TENSORS: dict[str, torch.Tensor] = {
    "half": torch.arange(6, dtype=torch.bfloat16).view(2, 3),
    "transposed": torch.arange(6).view(2, 3).t(),
    "scalar": torch.tensor(1.5),
    "empty": torch.empty(2, 0),
}


def round_trip(value: Any) -> Any:
    return codec.unpack(codec.pack(value))


def inside(value: Any) -> dict[str, Any]:
    """The value within each kind of container."""
    objects = np.empty(2, dtype=object)
    objects[1] = value
    return {
        "alone": value,
        "list": [1, value],
        "tuple": (1, value),
        "dict": {"a": 1, "b": value},
        "array": objects,
        "deep": [{"a": (objects,)}],
    }


@pytest.mark.parametrize("value", EXACT.values(), ids=EXACT.keys())
def test_values_come_back_in_value_and_type(value: Any) -> None:
    got = round_trip(value)
    assert type(got) is type(value)
    assert got == value


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS.keys())
def test_arrays_come_back_in_memory_of_their_own(array: np.ndarray) -> None:
    got = round_trip([array])[0]
    assert (type(got), got.dtype, got.shape) == (np.ndarray, array.dtype, array.shape)
    assert repr(got.tolist()) == repr(array.tolist())
    assert got.flags.writeable


@pytest.mark.parametrize(
    "value", [np.float32(1.5), np.int64(-1), np.bool_(True), np.datetime64("2026-01-01")], ids=repr
)
def test_a_numpy_scalar_stays_one(value: np.generic) -> None:
    got = round_trip(value)
    assert type(got) is type(value)
    assert got == value


@pytest.mark.parametrize("tensor", TENSORS.values(), ids=TENSORS.keys())
def test_dense_tensors_come_back(tensor: torch.Tensor) -> None:
    got = round_trip({"tokens": tensor})["tokens"]
    assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
    assert torch.equal(got, tensor)


class Text(str):
    """A subclass of str, which the codec would restore as a str."""

    __slots__ = ()


ARRAY = "^an array of .* can't be encoded exactly"
INEXACT: dict[str, tuple[Any, str]] = {
    "bytearray": (bytearray(b"a"), "^a bytearray can't be encoded exactly"),
    "memoryview": (memoryview(b"a"), "^a memoryview can't be encoded exactly"),
    "extension": (msgpack.ExtType(1, b"a"), "^a ExtType can't be encoded exactly"),
    "timestamp": (msgpack.Timestamp(1), "^a Timestamp can't be encoded exactly"),
    "subclass": (Text("a"), r"^a .*\.Text can't be encoded exactly"),
    "class": (Text, "^a builtins.type can't be encoded exactly"),
    "function": (len, "^a builtins.builtin_function_or_method can't be encoded exactly"),
    "structures": (np.zeros(1, dtype=[("a", int)]), ARRAY),
    "a structure": (np.zeros(1, dtype=[("a", int)])[0], ARRAY),
    "structures of objects": (np.zeros(1, dtype=[("a", object)]), ARRAY),
}


@pytest.mark.parametrize("where", inside(None))
@pytest.mark.parametrize(("value", "said"), INEXACT.values(), ids=INEXACT.keys())
def test_what_would_come_back_otherwise_is_refused(value: Any, said: str, where: str) -> None:
    with pytest.raises(TypeError, match=said):
        codec.pack(inside(value)[where])


@pytest.mark.filterwarnings("ignore::UserWarning")  # by torch, for nested and quantized tensors
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.eye(2).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(1)]),
        lambda: torch.quantize_per_tensor(torch.ones(1), 1.0, 0, torch.qint8),
    ],
    ids=["sparse", "nested", "quantized"],
)
def test_a_tensor_that_is_not_dense_is_refused(made: Callable[[], torch.Tensor]) -> None:
    with pytest.raises(
        TypeError, match=r"^only dense tensors can be encoded inside an object column$"
    ):
        codec.pack([made()])


@pytest.mark.parametrize("container", [lambda v: {v}, lambda v: {v: 1}], ids=["set", "key"])
def test_what_is_refused_is_so_as_a_member_or_a_key(container: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match="can't be encoded exactly"):
        codec.pack(container(msgpack.Timestamp(1)))


def test_a_list_that_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(TypeError, match=r"^can't be encoded exactly: .*recursion"):
        codec.pack(value)


@pytest.mark.parametrize("data", [b"", b"\xc1", codec.pack([1, 2])[:-1]])
def test_bytes_that_were_not_packed_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - msgpack's own words
        codec.unpack(data)


@pytest.mark.parametrize("name", ["float31", "Tensor", ""])
def test_a_name_that_is_no_dtype_is_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"^'{name}' is no dtype"):
        codec.dtype_named(name)
