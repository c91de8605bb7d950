"""Functions that scripts call to build values; ``call_source`` writes the calls."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import tensorclass


def unpacked(text: str, dtype: torch.dtype, shape: Sequence[int]) -> torch.Tensor:
    """The tensor whose bytes ``text`` holds, compressed and in base 85."""
    raw = bytearray(zlib.decompress(base64.b85decode(text)))
    return torch.frombuffer(raw, dtype=dtype).reshape(tuple(shape))


def tensorclass_like(name: str, held: Mapping[str, Any], batch_size: Sequence[int]) -> Any:
    """An instance of a new tensorclass of this name, with these fields."""
    annotations = dict.fromkeys(held, torch.Tensor)
    made: Any = tensorclass(type(name, (), {"__annotations__": annotations}))
    return made(**held, batch_size=list(batch_size))
