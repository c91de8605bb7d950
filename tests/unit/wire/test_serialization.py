"""Tensors that torch loses under pickle: every dtype and shape comes back, by its own bytes."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from rlconform.wire import reduce_tensor

#: What torch's own way brings back, and what it doesn't.
KNOWN = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
LOST = [
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def came_back(value: torch.Tensor) -> torch.Tensor:
    reduced = reduce_tensor(value)
    assert reduced is not None
    make, arguments = pickle.loads(pickle.dumps(reduced))
    made = make(*arguments)
    assert isinstance(made, torch.Tensor)
    return made


def raw(value: torch.Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", LOST, ids=str)
def test_torch_brings_none_of_them_back(dtype: torch.dtype) -> None:
    with pytest.raises(AttributeError):
        pickle.loads(pickle.dumps(torch.zeros(3).to(dtype)))


@pytest.mark.parametrize("dtype", KNOWN, ids=str)
def test_what_pickle_brings_back_is_left_to_it(dtype: torch.dtype) -> None:
    assert reduce_tensor(torch.zeros(3).to(dtype)) is None


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", LOST, ids=str)
def test_every_dtype_and_shape_comes_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.randint(0, 2, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype)
    value = value.reshape(shape)
    got = came_back(value)
    assert (got.dtype, got.shape, raw(got)) == (value.dtype, value.shape, raw(value))
    got.fill_(0)  # memory of its own, that may be written to


WORDS = torch.arange(12).to(torch.uint16)


@pytest.mark.parametrize(
    "value",
    [WORDS.view(3, 4).t(), WORDS[:4].expand(3, 4), WORDS[::5][:1], WORDS[2:5]],
    ids=["transposed", "expanded", "one of a stride", "slice"],
)
def test_a_view_comes_back_as_its_own_values(value: torch.Tensor) -> None:
    got = came_back(value)
    assert got.tolist() == value.tolist()
    assert got.untyped_storage().nbytes() == value.numel() * value.itemsize


@pytest.mark.parametrize(
    "value",
    [
        7,
        torch.nn.Parameter(torch.ones(2)),
        torch.eye(2).to_sparse(),
        torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
        torch.ones(2, device="meta").to(torch.uint16),
    ],
    ids=["number", "subclass", "sparse", "jagged", "meta"],
)
def test_what_is_no_plain_tensor_is_left_to_pickle(value: Any) -> None:
    assert reduce_tensor(value) is None
