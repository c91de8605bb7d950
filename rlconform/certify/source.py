"""Client calls and their arguments as Python source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from rlconform.wire import classify_leaf, object_rows

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
    if results and id(value) in results and value is not None:
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
    if hasattr(value, "sample_ids"):
        named = ", ".join(f"{name}={literal(held)}" for name, held in vars(value).items())
        return f"SimpleNamespace({named})"
    return repr(value)


def _leaf(batch: TensorDictBase, key: str) -> str:
    leaf = batch.get(key)
    try:
        kind = classify_leaf(leaf)
    except TypeError:
        return literal(leaf)
    if kind != "object":
        return literal(leaf)
    values = ", ".join(
        f"NonTensorData({literal(item)})" for item in object_rows(leaf, batch.batch_size[0])
    )
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
    return f"torch.tensor({value.tolist()}, dtype={value.dtype})"
