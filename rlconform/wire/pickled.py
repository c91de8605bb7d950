"""A dense tensor under pickle: by its bytes, dtype and shape.

torch's own way (2.13) takes the whole storage of a view along, and a tensor of fp8 or of a wide
unsigned dtype, once pickled, can't be read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

#: What makes the value again, and its arguments: what pickle asks of a reducer.
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def reduce_tensor(value: Any) -> Reduced | None:
    """How pickle is to take ``value`` apart; None of anything but a dense tensor of no subclass.

    A tensor comes back on the CPU, contiguous, and without its gradient's history.
    """
    if type(value) is not Tensor or value.is_nested or value.layout is not torch.strided:
        return None
    if value.is_quantized or value.is_meta:
        return None
    own = value.detach().resolve_conj().resolve_neg().cpu()
    # a row of one element may have any stride and be called contiguous: a clone has its own
    whole = own.clone(memory_format=torch.contiguous_format)
    data = whole.reshape(-1).view(torch.uint8).numpy().tobytes()
    return tensor_of, (data, value.dtype, tuple(value.shape))


def tensor_of(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """The tensor of these bytes."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)
