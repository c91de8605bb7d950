"""Turns client calls and their arguments into Python source that repeats them."""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDictBase, is_tensorclass, tensorclass

from rlconform.certify.reproduce.numbered import numbered
from rlconform.certify.reproduce.tensor_source import NoSource, tensor_source
from rlconform.contract import KVBatchMeta

#: The fields of a meta, the result of a claim.
META_FIELDS = (
    "partition_id", "task_name", "sample_ids", "fields", "sequence_lengths", "extra_info", "tags",
)  # fmt: skip
#: Types whose values ``repr`` writes as source, also within a list or dict of nothing else.
_OWN_SOURCE = frozenset({bool, int, str, bytes, types.NoneType})


@dataclass(frozen=True)
class ScriptExpression:
    """The source of a value that the script computes."""

    source: str


def call_source(
    number: int,
    who: str,
    method: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    results: Mapping[int, str],
) -> str:
    """Return a line of Python that makes the call and assigns its result to ``r<number>``.

    ``results`` has the names of earlier results by ``id``; an argument that is an earlier result is
    written as its name. A call becomes a comment if an argument can't be written as source.
    """
    call = f"r{number} = attempt({who}.{method}"
    try:
        shown = [literal(value, results) for value in args]
        shown += [f"{name}={literal(value, results)}" for name, value in kwargs.items()]
    except NoSource as error:
        return f"# {call}, ...)  # {error}"
    return f"{', '.join([call, *shown])})"


def literal(value: Any, results: Mapping[int, str] | None = None) -> str:
    """Return source of an equal value, or the name of the result that it is; else ``NoSource``."""
    if type(value) in _OWN_SOURCE:
        return repr(value)
    if results and id(value) in results and not isinstance(value, bool | int | str | None):
        return results[id(value)]
    if isinstance(value, ScriptExpression):
        return value.source
    if isinstance(value, torch.Tensor):
        return tensor_source(value)
    if is_tensorclass(value) and not isinstance(value, NonTensorData | NonTensorStack):
        return _tensorclass(value)
    if isinstance(value, NonTensorStack):
        items = [f"NonTensorData({literal(item.data)})" for item in value.unbind(0)]
        return f"NonTensorStack({', '.join(items)})"
    if isinstance(value, NonTensorData):
        size = f", batch_size={list(value.batch_size)}" if value.batch_size else ""
        return f"NonTensorData({literal(value.data)}{size})"
    if isinstance(value, TensorDictBase):
        columns = [f"{key!r}: {literal(_leaf(value, key))}" for key in value.keys()]  # noqa: SIM118
        return f"TensorDict({{{', '.join(columns)}}}, batch_size={list(value.batch_size)})"
    if isinstance(value, np.ndarray):
        return _array(value)
    if type(value) in {list, tuple, set, frozenset, dict}:
        return _container(value)
    if type(value) is KVBatchMeta or hasattr(value, "sample_ids"):
        made = "KVBatchMeta" if type(value) is KVBatchMeta else "SimpleNamespace"
        held = ((name, getattr(value, name)) for name in META_FIELDS if hasattr(value, name))
        return f"{made}({', '.join(f'{name}={literal(item)}' for name, item in held)})"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) is complex:
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, np.generic):
        return f"np.{type(value).__name__}({literal(value.item())})"
    if isinstance(value, torch.dtype):
        return repr(value)
    if value is object:
        return "object"
    if type(value) is object:
        return "object()"
    raise NoSource(f"it holds a {type(value).__name__}, which has no source")


def _container(value: Any) -> str:
    if isinstance(value, dict):
        if _OWN_SOURCE.issuperset(map(type, (*value, *value.values()))):  # tags
            return repr(value)
        items = (f"{literal(key)}: {literal(held)}" for key, held in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list):
        if source := numbered(value):
            return source
        if _OWN_SOURCE.issuperset(map(type, value)):  # ids, above all
            return repr(value)
        return f"[{_items(value)}]"
    if isinstance(value, tuple):
        return f"({''.join(f'{literal(item)}, ' for item in value)})"
    return f"{type(value).__name__}([{', '.join(sorted(literal(item) for item in value))}])"


def _items(values: Sequence[Any]) -> str:
    return ", ".join(literal(value) for value in values)


def _leaf(batch: TensorDictBase, key: str) -> Any:
    leaf = batch.get(key)
    # a TensorDict wraps a numpy array that is put into it; the script's TensorDict does so again
    wrapped = isinstance(leaf, NonTensorData) and isinstance(leaf.data, np.ndarray)
    return leaf.data if wrapped else leaf


def _array(value: np.ndarray[Any, Any]) -> str:
    if value.dtype == object and value.ndim == 1:
        return f"object_array([{_items(list(value))}])"
    if value.dtype == object:
        raise NoSource("it holds an array of objects of several dimensions")
    return f"np.array({literal(value.tolist())}, dtype={value.dtype.str!r})"


def _tensorclass(value: Any) -> str:
    """Return source of a new tensorclass with these fields; scripts can't import the check's."""
    held = {field.name: value.get(field.name) for field in dataclasses.fields(value)}
    size = list(value.batch_size)
    return f"tensorclass_like({type(value).__name__!r}, {literal(held)}, batch_size={size})"


def tensorclass_like(name: str, held: Mapping[str, Any], batch_size: Sequence[int]) -> Any:
    """Return an instance of a new tensorclass with this name and these fields; for scripts."""
    annotations = dict.fromkeys(held, torch.Tensor)
    made: Any = tensorclass(type(name, (), {"__annotations__": annotations}))
    return made(**held, batch_size=list(batch_size))
