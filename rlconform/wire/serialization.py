"""Tensors that torch can't bring back from pickle: by their bytes, dtype and shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: What makes the value again, and its arguments: what pickle asks of a reducer.
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

#: Dtypes that torch (2.13) unpickles: those that once had a class of storage of their own.
_UNPICKLES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
}  # fmt: skip


def reduce_tensor(value: Any) -> Reduced | None:
    """How pickle is to take a tensor of fp8, say, apart; None of what pickle can take apart itself.

    Such a tensor comes back on the CPU and contiguous.
    """
    if type(value) is not Tensor or value.dtype in _UNPICKLES or value.layout is not torch.strided:
        return None
    if value.is_quantized or value.is_meta:
        return None
    # a row of one element may have any stride and be called contiguous: a clone has its own
    own = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    data = own.reshape(-1).view(torch.uint8).numpy().tobytes()
    return tensor_of, (data, value.dtype, tuple(value.shape))


def tensor_of(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor of these bytes."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
