"""Calls on their way to another process: any column arrives, and what Ray counts is left to it."""

from __future__ import annotations

import pickle

import pytest
import ray
import torch
from tensordict import TensorDict

from rlconform.certify.isolation.ray_argument import RayArgument
from rlconform.wire import same_rows

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
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
