"""Formats values and texts as one short line, for evidence and reports."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDictBase


def shorten(text: str, limit: int = 200) -> str:
    """Return ``text`` on one line, cut to ``limit`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."


def brief(value: Any) -> str:
    """Return a value as short text: tensors by dtype and shape, long lists by length."""
    if isinstance(value, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass():  # else a nested tensor takes torch 60 us
            kind = "jagged" if value.is_nested else "x".join(map(str, value.shape)) or "scalar"
            return f"{str(value.dtype).removeprefix('torch.')}[{kind}]"
    if isinstance(value, NonTensorStack) and len(value) > 4:
        return f"{len(value)} objects"
    if isinstance(value, TensorDictBase):
        columns = ", ".join(f"{key}: {brief(value.get(key))}" for key in sorted(value.keys()))
        return f"{{{columns}}} x {tuple(value.batch_size)}"
    if isinstance(value, NonTensorData):
        return f"NonTensorData({brief(value.data)})"
    if isinstance(value, np.ndarray) and value.size > 4:  # numpy takes long to format one
        return f"numpy {value.dtype}[{'x'.join(map(str, value.shape))}]"
    if isinstance(value, list | tuple) and len(value) > 4:
        head = ", ".join(brief(item) for item in itertools.islice(value, 3))
        return f"[{head}, ... {len(value)} in all]"
    if hasattr(value, "sample_ids"):
        return f"meta of {brief(value.sample_ids)}"
    return shorten(repr(value), 80)


def error_text(error: BaseException) -> str:
    """Return an error as one short line: its type and its message."""
    return f"{type(error).__name__}: {shorten(str(error))}"


def call_text(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return a call as one readable line."""
    shown = [brief(value) for value in args]
    shown += [f"{key}={brief(value)}" for key, value in kwargs.items()]
    return f"{name}({', '.join(shown)})"
