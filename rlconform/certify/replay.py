"""From the calls of a failed check to a short script of client calls that a vendor can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from rlconform.contract import load_requirements
from rlconform.wire import classify_leaf, object_rows

#: Longer histories tell a person nothing; checks of concurrency have thousands of calls.
MAX_LINES = 40
#: Larger tensors are written as zeros of the same dtype and shape.
MAX_LITERAL = 64


@dataclass(frozen=True)
class Call:
    """One client call as text.

    Attributes:
        who: Which client made it: ``client`` is the owner's, any other ran in another process.
        text: The call for people, long values shortened.
        source: The call as a line of Python.
    """

    who: str
    text: str
    source: str


_HEADER = '''"""{id}: {sentence}

{evidence}
"""

from types import SimpleNamespace

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.replay import attempt
from rlconform.certify.resolve import open_target

nan, inf = float("nan"), float("inf")
client = open_target({spec!r}{config})
'''


def attempt(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Make a client call and print what came: the columns of a batch, a result, or the error."""
    name = getattr(call, "__name__", str(call))
    try:
        came = call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - a reproducer shows whatever the plane raises
        print(f"{name} raised {type(error).__name__}: {error}")  # noqa: T201
        return None
    if isinstance(came, TensorDictBase):
        columns = {key: came.get(key) for key in came.keys()}  # noqa: SIM118
        print(f"{name} -> batch of {tuple(came.batch_size)}: {columns}")  # noqa: T201
    else:
        print(f"{name} -> {came}")  # noqa: T201
    return came


def render_script(
    requirement_id: str,
    evidence: str,
    calls: Sequence[Call],
    spec: str,
    config: Mapping[str, Any] | None = None,
) -> str:
    """A script that makes ``calls`` on the target ``spec`` and prints what comes of each."""
    options = f", {dict(config)!r}" if config else ""
    lines = [
        _HEADER.format(
            id=requirement_id,
            sentence=_in_docstring(load_requirements()[requirement_id].sentence),
            evidence=_in_docstring(evidence),
            spec=spec,
            config=options,
        )
    ]
    opened = {"client"}
    for call in calls[:MAX_LINES]:
        if call.who not in opened:
            opened.add(call.who)
            attach = f"{call.who} = open_target({spec!r}{options or ', {}'}, bootstrap=False)"
            lines.append(f"{attach}  # another process, in the check")
        lines.append(call.source)
    if len(calls) > MAX_LINES:
        lines.append(f"# ... and {len(calls) - MAX_LINES} more calls")
    lines.append("client.close()")
    return "\n".join(lines) + "\n"


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


def _in_docstring(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"""', "'''")
