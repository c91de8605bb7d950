"""From the calls of a failed check to a short script of client calls that a vendor can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlconform.contract import load_requirements

#: Longer histories tell a person nothing; checks of concurrency have thousands of calls.
MAX_LINES = 40


@dataclass(frozen=True)
class Call:
    """One client call as text.

    Attributes:
        who: Which client made it: ``client`` is the owner's, any other ran in another process.
        text: The call for people, long values shortened.
        source: The call as a line of Python; empty for calls beyond the first ``MAX_CALLS``.
        beside: Calls of other threads that were on their way when it was made, as text.
    """

    who: str
    text: str
    source: str
    beside: tuple[str, ...] = ()

    def told(self) -> str:
        """The call and those beside it, for people."""
        return f"{self.text}{', beside ' * bool(self.beside)}{' and '.join(self.beside)}"


_HEADER = '''"""{id}: {sentence}

{evidence}
"""

from types import SimpleNamespace

import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.certify.evidence.replay import attempt
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
    if hasattr(came, "batch_size"):
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


def _in_docstring(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    return "".join(char if char >= " " or char == "\n" else repr(char)[1:-1] for char in escaped)
