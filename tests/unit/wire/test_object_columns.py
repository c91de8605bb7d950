"""Object columns are read in every form that tensordict and planes use."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.wire import is_object_column, object_column, object_rows

VALUES = ["text", None, {"a": [1, {"b": None}]}, [1, 2], (1, "t"), 3, 2.5, True, b"raw", {1, 2}]
N = len(VALUES)


def as_array(values: list[object]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


CARRIERS = {
    "NonTensorStack": lambda: object_column(VALUES),
    "list": lambda: list(VALUES),
    "array": lambda: as_array(VALUES),
    "array in a batch, item": lambda: TensorDict({"m": as_array(VALUES)}, [N])["m"],
    "array in a batch, leaf": lambda: TensorDict({"m": as_array(VALUES)}, [N]).get("m"),
    "stack in a batch, item": lambda: TensorDict({"m": object_column(VALUES)}, [N])["m"],
    "stack in a batch, leaf": lambda: TensorDict({"m": object_column(VALUES)}, [N]).get("m"),
    "stack in a cloned batch": lambda: TensorDict({"m": object_column(VALUES)}, [N]).clone()["m"],
}


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
def test_every_carrier_gives_the_same_values(carrier):
    leaf = carrier()
    assert is_object_column(leaf)
    rows = object_rows(leaf, N)
    assert rows == VALUES
    assert [type(row) for row in rows] == [type(value) for value in VALUES]


@pytest.mark.parametrize("carrier", CARRIERS.values(), ids=CARRIERS)
def test_no_carrier_loses_or_gains_a_row(carrier):
    for wrong in (0, N - 1, N + 1):
        with pytest.raises(ValueError, match="object column"):
            object_rows(carrier(), wrong)


def test_one_value_stands_for_all_rows():
    assert object_rows(NonTensorData("abc", batch_size=[3]), 3) == ["abc"] * 3
    assert object_rows(NonTensorData([1, 2], batch_size=[2]), 2) == [[1, 2], [1, 2]]
    assert object_rows(NonTensorData(None, batch_size=[0]), 0) == []


def test_a_sliced_batch_of_one_array_is_refused():
    """Slicing keeps the whole array, so the selected rows are unknown."""
    batch = TensorDict({"m": as_array(["a", "b", "c"])}, [3])[:2]
    with pytest.raises(ValueError, match="3 values in a batch of 2"):
        object_rows(batch.get("m"), 2)


def test_arrays_of_strings_give_plain_strings():
    rows = object_rows(np.array(["a", "bc"]), 2)
    assert rows == ["a", "bc"]
    assert {type(row) for row in rows} == {str}


def test_arrays_and_tensors_are_values_too():
    values = [np.arange(3), torch.arange(2), {"t": torch.ones(1)}, TensorDict({}, [])]
    rows = object_rows(object_column(values), 4)
    assert all(row is value for row, value in zip(rows, values, strict=True))
    shared = object_rows(NonTensorData(np.arange(3), batch_size=[3]), 3)
    assert all(row.tolist() == [0, 1, 2] for row in shared)


@pytest.mark.parametrize("make", [object_column, as_array], ids=["stack", "array"])
def test_lists_of_equal_length_stay_one_value_per_row(make):
    values = [[1, 2], [3, 4]]
    assert object_rows(make(values), 2) == values


def test_empty_column_survives_a_batch():
    column = object_column([])
    assert isinstance(column, NonTensorStack)
    assert object_rows(TensorDict({"m": column}, [0]).get("m"), 0) == []


def test_column_follows_the_indexing_of_its_batch():
    batch = TensorDict({"m": object_column("abcd")}, [4])
    picked = batch[torch.tensor([3, 1])]
    assert object_rows(picked.get("m"), 2) == ["d", "b"]
    assert object_rows(torch.cat([picked, batch[:1]]).get("m"), 3) == ["d", "b", "a"]


@pytest.mark.parametrize(
    "leaf",
    [
        torch.zeros(2),
        TensorDict({"a": torch.zeros(2)}, [2]),
        np.zeros(2),
        np.array(None, dtype=object),
        "ab",
        ("a", "b"),
        {"a": 1, "b": 2},
        None,
    ],
    ids=["tensor", "TensorDict", "numbers", "0-d array", "str", "tuple", "dict", "None"],
)
def test_anything_else_is_no_object_column(leaf):
    assert not is_object_column(leaf)
    with pytest.raises(TypeError, match=f"^not an object column: {type(leaf).__name__}$"):
        object_rows(leaf, 2)
