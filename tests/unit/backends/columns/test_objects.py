"""Object columns are encoded exactly, value by value, and without unused storage."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.backends.columns import objects

Turn = namedtuple("Turn", ["role", "tokens"])


@dataclass
class Image:
    """A class that the codec of plain data does not support."""

    name: str
    pixels: torch.Tensor


class Text(str):
    """A subclass of str, which must not be restored as a str."""

    __slots__ = ()


def round_trip(*values: Any) -> list[Any]:
    return list(objects.decode(*objects.encode(values)))


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text())
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.tuples(inner, inner),
    max_leaves=10,
)


def same(left: Any, right: Any) -> bool:
    """Whether both are equal in value and in the type of every part."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(VALUES, max_size=5))
def test_plain_data_comes_back_in_value_and_type(values: list[Any]) -> None:
    assert same(round_trip(*values), values)


def test_each_value_lies_between_its_offsets() -> None:
    values, offsets = objects.encode(["a", {"b": 1}, None])
    assert values.dtype == np.uint8
    assert (offsets[0], offsets[-1], len(offsets)) == (0, len(values), 4)
    alone = [values[start:end] for start, end in pairwise(offsets)]
    for part, value in zip(alone, ["a", {"b": 1}, None], strict=True):
        assert list(objects.decode(part, np.array([0, len(part)]))) == [value]


@pytest.mark.parametrize(
    "value",
    [OrderedDict(b=1, a=2), Turn("user", [1]), Text("text"), torch.float32, 1j, {Text("k"): {1}}],
    ids=lambda value: type(value).__name__,
)
def test_other_classes_come_back_as_what_they_were(value: Any) -> None:
    (got,) = round_trip(value)
    assert type(got) is type(value)
    assert got == value


def test_a_custom_class_comes_back_beside_plain_data() -> None:
    pixels = torch.arange(6.0).view(2, 3)
    plain, custom = round_trip({"turn": 1}, {"image": Image("cat", pixels)})
    assert plain == {"turn": 1}
    assert custom["image"].name == "cat"
    assert torch.equal(custom["image"].pixels, pixels)


BASE = torch.arange(1_000_000.0)
VIEW = BASE[10:14]


@pytest.mark.parametrize(
    "holder",
    [
        VIEW,
        [VIEW, (VIEW, {VIEW})],
        {"tokens": {"deep": VIEW}},
        [Image("cat", BASE[:1].expand(4)), VIEW],
        Image("cat", VIEW),
        Turn("user", VIEW),
        OrderedDict(tokens=VIEW),
        [Turn("user", [Image("cat", VIEW)])],
    ],
    ids=["tensor", "list", "dict", "beside", "class", "namedtuple", "subclass", "deep"],
)
def test_a_tensor_counts_its_own_size_wherever_it_is(holder: Any) -> None:
    values, _ = objects.encode([holder])
    assert values.nbytes < 5000


def test_a_tensor_within_a_class_comes_back_in_memory_of_its_own() -> None:
    (got,) = round_trip(Image("cat", VIEW))
    assert torch.equal(got.pixels, VIEW)
    assert got.pixels.untyped_storage().nbytes() == VIEW.nbytes


@pytest.mark.parametrize("within", ["plain data", "a class"])
@pytest.mark.parametrize(
    "tensor",
    [
        BASE[:12].view(3, 4).t(),
        BASE[::5][:1],
        BASE[:0],
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.ones(2, requires_grad=True) * 2,
        torch.tensor(7),
        torch.tensor([1.0, -2.0]).to(torch.float8_e4m3fn),
        torch.tensor([1, 60_000]).to(torch.uint16),
    ],
    ids=["transposed", "one of a stride", "empty", "conjugate", "grad", "scalar", "fp8", "uint16"],
)
def test_any_dense_tensor_comes_back(tensor: torch.Tensor, within: str) -> None:
    if within == "a class":
        got = round_trip(Image("cat", tensor))[0].pixels
    else:
        got = round_trip([tensor])[0][0]
    assert (got.dtype, got.shape, got.requires_grad) == (tensor.dtype, tensor.shape, False)
    assert torch.equal(got, tensor.detach())


def test_a_sparse_tensor_comes_back() -> None:
    (got,) = round_trip({"image": torch.eye(2).to_sparse()})
    assert torch.equal(got["image"].to_dense(), torch.eye(2))


def test_what_comes_back_is_fresh_each_time() -> None:
    encoded = objects.encode([{"log": [1]}, Image("cat", torch.zeros(1))])
    (log, image), (log_again, image_again) = (list(objects.decode(*encoded)) for _ in range(2))
    log["log"].append(2)
    image.pixels += 1
    assert log_again == {"log": [1]}
    assert image_again.pixels.tolist() == [0]


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


UNPICKLABLE: dict[str, Any] = {
    "lock": threading.Lock(),
    "generator": (n for n in ()),
    "within": {"turns": [("user", threading.Lock())]},
    "within a class": Image("cat", threading.Lock()),  # type: ignore[arg-type]
    "too deep": nested(100_000),
}


@pytest.mark.parametrize("value", UNPICKLABLE.values(), ids=UNPICKLABLE.keys())
def test_a_value_that_can_not_be_pickled_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^a value of an object column can't be pickled: "):
        objects.encode([1, value])


def test_a_class_of_a_script_goes_by_value() -> None:
    """The class is pickled too, because no other process can import it."""
    script = "class Note:\n    def __init__(self): self.text = 'é'\n"
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(script, names)
    values, offsets = objects.encode([names["Note"]()])
    code = (
        "import pickle, sys; data = sys.stdin.buffer.read(); "
        "sys.exit(pickle.loads(data[1:]).text != '\\u00e9')"
    )
    assert offsets.tolist() == [0, values.size]
    subprocess.run([sys.executable, "-c", code], input=values.tobytes(), check=True)


def test_a_list_that_holds_itself_is_carried_or_refused() -> None:
    value: list[Any] = [1]
    value.append(value)
    try:
        (got,) = round_trip(value)
    except TypeError:
        return
    assert got[0] == 1
    assert got[1] is got
