"""Pickling with ``reduce_tensor``, ``RayArgument`` and ``dumps`` restores every dtype and shape."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import ray
import torch
from tensordict import TensorDict

from rlconform.wire import same_rows
from rlconform.wire.serialization import RayArgument, dumps, loads, reduce_tensor

#: The dtypes that torch can unpickle, and those that it cannot.
KNOWN = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
LOST = [
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def restored(value: torch.Tensor) -> torch.Tensor:
    reduced = reduce_tensor(value)
    assert reduced is not None
    make, arguments = pickle.loads(pickle.dumps(reduced))
    made = make(*arguments)
    assert isinstance(made, torch.Tensor)
    return made


def raw(value: torch.Tensor) -> bytes:
    return value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", LOST, ids=str)
def test_torch_unpickles_none_of_them(dtype: torch.dtype) -> None:
    with pytest.raises(AttributeError):
        pickle.loads(pickle.dumps(torch.zeros(3).to(dtype)))


@pytest.mark.parametrize("dtype", KNOWN, ids=str)
def test_dtypes_that_torch_unpickles_are_left_to_it(dtype: torch.dtype) -> None:
    assert reduce_tensor(torch.zeros(3).to(dtype)) is None


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3, 4)], ids=str)
@pytest.mark.parametrize("dtype", LOST, ids=str)
def test_every_dtype_and_shape_is_restored(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    value = torch.randint(0, 2, (*shape, dtype.itemsize), dtype=torch.uint8).view(dtype)
    value = value.reshape(shape)
    got = restored(value)
    assert (got.dtype, got.shape, raw(got)) == (value.dtype, value.shape, raw(value))
    got.fill_(0)  # separate, writable memory


WORDS = torch.arange(12).to(torch.uint16)


@pytest.mark.parametrize(
    "value",
    [WORDS.view(3, 4).t(), WORDS[:4].expand(3, 4), WORDS[::5][:1], WORDS[2:5]],
    ids=["transposed", "expanded", "one of a stride", "slice"],
)
def test_a_view_is_restored_without_the_rest_of_its_storage(value: torch.Tensor) -> None:
    got = restored(value)
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
def test_other_values_than_plain_tensors_are_left_to_pickle(value: Any) -> None:
    assert reduce_tensor(value) is None


# -- RayArgument -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*KNOWN, *LOST[:5]], ids=str)
def test_a_call_with_a_batch_arrives_whole(dtype: torch.dtype) -> None:
    rows = [torch.randint(0, 2, (n, dtype.itemsize), dtype=torch.uint8) for n in (2, 0, 3)]
    tokens = [row.view(dtype).reshape(-1) for row in rows]
    columns = {
        "jagged": torch.nested.nested_tensor(tokens, layout=torch.jagged),
        "dense": torch.stack([tokens[0][:1]] * 3),
    }
    sent = RayArgument(((["a", "b", "c"],), {"fields": TensorDict(columns, [3])}))
    args, kwargs = pickle.loads(pickle.dumps(sent))
    assert args == (["a", "b", "c"],)
    for name, column in columns.items():
        assert same_rows(kwargs["fields"][name], column), name


def test_a_gradient_and_strides_arrive_as_they_were() -> None:
    value = torch.ones(3, 4, requires_grad=True)
    arrived, turned = pickle.loads(pickle.dumps(RayArgument((value, torch.zeros(3, 4).t()))))
    assert arrived.requires_grad
    assert turned.stride() == (1, 4)


def test_references_are_left_to_ray() -> None:
    reference = ray.ObjectRef(b"r" * 28)
    make, (data, references) = RayArgument({"extra": [reference]}).__reduce__()
    assert references == [reference]
    assert b"r" * 28 not in data
    assert make(data, ["another"]) == {"extra": ["another"]}


def test_a_value_left_out_is_the_very_one_given_back() -> None:
    tensor = torch.ones(3)
    data, parts = dumps([tensor, {"x": tensor}], out_of_band=torch.is_tensor)
    assert len(parts) == 1
    first, second = loads(data, parts)
    assert first is tensor
    assert second["x"] is tensor


@pytest.mark.parametrize("compact", [False, True])
def test_compact_tensors_drop_strides_gradient_and_the_rest_of_the_storage(compact: bool) -> None:
    value = torch.ones(100, 4, requires_grad=True)[:2].t()
    got = loads(dumps([value.detach().requires_grad_()], compact_tensors=compact)[0])[0]
    assert torch.equal(got.detach(), value.detach())
    assert got.requires_grad is not compact
    assert (got.untyped_storage().nbytes() == value.nbytes) is compact
