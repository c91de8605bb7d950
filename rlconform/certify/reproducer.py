"""From the calls of a failed check to a script of plain client calls that a vendor can run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDictBase

from rlconform.certify.recorder import Step
from rlconform.contract import load_requirements
from rlconform.wire import classify_leaf, object_rows

#: Longer histories tell a person nothing; checks of concurrency have thousands of calls.
MAX_CALLS = 40
#: Larger tensors are written as zeros of the same dtype and shape.
MAX_LITERAL = 64

_HEADER = '''"""{id}: {sentence}

{evidence}
"""

from types import SimpleNamespace

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.resolve import open_target

nan, inf = float("nan"), float("inf")


def attempt(call, **arguments):
    """Call, and show the error where there is one."""
    try:
        return call(**arguments)
    except Exception as error:
        print(f"{{call.__name__}} raised {{type(error).__name__}}: {{error}}")


client = open_target({spec!r})
'''


def render_reproducer(requirement_id: str, evidence: str, steps: Sequence[Step], spec: str) -> str:
    """A script that repeats ``steps`` on the target ``spec`` and prints what the last one gives."""
    sentence = load_requirements()[requirement_id].sentence
    lines = [
        _HEADER.format(
            id=requirement_id,
            sentence=_in_docstring(sentence),
            evidence=_in_docstring(evidence),
            spec=spec,
        )
    ]
    names = {"client": "client"}
    results: dict[int, str] = {}
    for index, step in enumerate(itertools.islice(steps, MAX_CALLS)):
        if step.who not in names:
            names[step.who] = step.who
            lines.append(
                f"{step.who} = open_target({spec!r}, bootstrap=False)  # in another process there"
            )
        lines.append(_call(index, names[step.who], step, results))
    if len(steps) > MAX_CALLS:
        lines.append(f"# ... and {len(steps) - MAX_CALLS} more calls")
    if steps:
        lines.append(f"print(r{min(len(steps), MAX_CALLS) - 1})")
    lines.append("client.close()")
    return "\n".join(lines) + "\n"


def _call(index: int, who: str, step: Step, results: dict[int, str]) -> str:
    arguments = [f"{name}={literal(value, results)}" for name, value in step.kwargs.items()]
    arguments = [literal(value, results) for value in step.args] + arguments
    if step.result is not None:
        results[id(step.result)] = f"r{index}"
    if step.error is not None:
        return f"r{index} = attempt({', '.join([f'{who}.{step.method}', *arguments])})"
    return f"r{index} = {who}.{step.method}({', '.join(arguments)})"


def literal(value: Any, results: dict[int, str] | None = None) -> str:
    """Python source that makes ``value`` again, or the name of the earlier result that it is."""
    if results and id(value) in results:
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
