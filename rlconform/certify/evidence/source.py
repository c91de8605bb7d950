"""Client calls and their arguments as Python source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from rlconform.wire import classify_leaf, object_rows

#: What a meta holds.
META_FIELDS = (
    "partition_id", "task_name", "sample_ids", "fields", "sequence_lengths", "extra_info", "tags",
)  # fmt: skip
#: Larger tensors are written as zeros of the same dtype and shape.
MAX_LITERAL = 256


def call_source(
    number: int,
    who: str,
    method: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Mapping[int, str],
) -> str:
    """The call as a line that keeps its result as ``r<number>``.

    ``results`` names earlier results by ``id``, so that a meta handed on is not written out.
    """
    shown = [f"{who}.{method}", *(literal(value, results) for value in args)]
    shown += [f"{name}={literal(value, results)}" for name, value in kwargs.items()]
    return f"r{number} = attempt({', '.join(shown)})"


def literal(value: Any, results: Mapping[int, str] | None = None) -> str:
    """Python source that makes ``value`` again, or the name of the earlier result that it is."""
    if results and id(value) in results and not isinstance(value, bool | int | str | None):
        return results[id(value)]
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    if isinstance(value, TensorDictBase):
        columns = [f"{key!r}: {_leaf(value, key)}" for key in value.keys()]  # noqa: SIM118
        return f"TensorDict({{{', '.join(columns)}}}, batch_size={list(value.batch_size)})"
    if isinstance(value, np.ndarray):
        return literal(value.tolist())
    if isinstance(value, list):
        return f"[{', '.join(literal(item) for item in value)}]"
    if isinstance(value, tuple):
        return f"({''.join(f'{literal(item)}, ' for item in value)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {literal(held)}' for key, held in value.items())}}}"
    if hasattr(value, "sample_ids"):
        held = ((name, getattr(value, name)) for name in META_FIELDS if hasattr(value, name))
        return f"SimpleNamespace({', '.join(f'{name}={literal(item)}' for name, item in held)})"
    return repr(value)


def _leaf(batch: TensorDictBase, key: str) -> str:
    leaf = batch.get(key)
    try:
        kind = classify_leaf(leaf)
    except TypeError:
        return literal(leaf)
    if kind != "object":
        return literal(leaf)
    try:
        rows = object_rows(leaf, batch.batch_size.numel())
    except ValueError:  # a column that doesn't fit its batch: the plane is to refuse it
        return repr(leaf.data)
    values = ", ".join(f"NonTensorData({literal(item)})" for item in rows)
    return f"NonTensorStack({values})"


def _tensor(value: torch.Tensor) -> str:
    value = value.detach().cpu()
    if value.is_nested:
        rows = ", ".join(_tensor(row) for row in value.unbind())
        return f"torch.nested.as_nested_tensor([{rows}], layout=torch.jagged)"
    if value.is_sparse:
        return f"{_tensor(value.to_dense())}.to_sparse()"
    if value.numel() == 0 or value.numel() > MAX_LITERAL:
        return f"torch.zeros({tuple(value.shape)}, dtype={value.dtype})"
    if value.is_complex() or (value.is_floating_point() and value.double().isnan().any()):
        # only bytes say which NaN it is, and a complex one has no literal
        plain = value.resolve_conj().resolve_neg().reshape(-1)
        raw = plain.clone(memory_format=torch.contiguous_format).view(torch.uint8).tolist()
        source = f"torch.tensor({raw}, dtype=torch.uint8).view({value.dtype})"
        return f"{source}.reshape({tuple(value.shape)})"
    return f"torch.tensor({_elements(value)}, dtype={value.dtype})"


def _elements(value: torch.Tensor) -> str:
    """The elements as nested lists; rows of printable bytes (self-describing ones) as text."""
    if value.dtype is not torch.uint8 or value.dim() not in {1, 2}:
        return repr(value.tolist())
    if value.dim() == 2:
        return f"[{', '.join(_elements(row) for row in value)}]"
    text = bytes(value.tolist())
    return f"[*{text!r}]" if text.isascii() and text.decode().isprintable() else repr([*text])
