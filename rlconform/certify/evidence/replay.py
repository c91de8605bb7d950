"""From the calls of a failed check to a short script of client calls that a vendor can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from rlconform.contract import load_requirements

#: Longer histories tell a person nothing; checks of concurrency have thousands of calls.
MAX_LINES = 40
#: Rows of a column that a script prints.
MAX_ROWS = 8
#: What a script says whose calls ran beside each other in the check.
_THREADS = "# In the check these calls ran in threads: one after the other they may show nothing."


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

Why it matters: {why}
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
    """Make a client call and print what came: the rows of a batch, a result, or the error.

    The call's name is printed before it is made, for a call may hang, or end the process.
    """
    print(getattr(call, "__name__", str(call)), end=" ", flush=True)  # noqa: T201
    try:
        came = call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001 - a reproducer shows whatever the plane raises
        print(f"raised {type(error).__name__}: {error}")  # noqa: T201
        return None
    if hasattr(came, "batch_size"):
        print(f"-> batch of {tuple(came.batch_size)}")  # noqa: T201
        for key in came.keys():  # noqa: SIM118
            print(f"    {key}: {_shown(came.get(key), len(came))}")  # noqa: T201
    else:
        print(f"-> {came}")  # noqa: T201
    return came


def _shown(leaf: Any, count: int) -> str:
    """A column's first rows, as the evidence shows them."""
    from rlconform.certify.evidence.expect import show_row  # noqa: PLC0415 - it imports torch
    from rlconform.wire import object_rows, rows_of  # noqa: PLC0415

    try:
        rows = [show_row(row) for row in islice(rows_of(leaf), MAX_ROWS)]
    except TypeError:
        try:
            rows = [repr(value) for value in object_rows(leaf, count)[:MAX_ROWS]]
        except (TypeError, ValueError):
            return repr(leaf)
    more = f", and {count - MAX_ROWS} more" if count > MAX_ROWS else ""
    return ", ".join(rows) + more


def render_script(
    requirement_id: str,
    evidence: str,
    calls: Sequence[Call],
    spec: str,
    config: Mapping[str, Any] | None = None,
) -> str:
    """A script that makes ``calls`` on the target ``spec`` and prints what comes of each."""
    requirement = load_requirements()[requirement_id]
    options = f", {dict(config)!r}" if config else ""
    lines = [
        _HEADER.format(
            id=requirement_id,
            sentence=in_docstring(requirement.sentence),
            evidence=in_docstring(evidence),
            why=in_docstring(requirement.why),
            spec=spec,
            config=options,
        )
    ]
    if any(call.beside for call in calls):
        lines.append(_THREADS)
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


def in_docstring(text: str) -> str:
    """``text`` as it can stand in a docstring of a script, whatever a plane said in it."""
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    return "".join(char if char >= " " or char == "\n" else repr(char)[1:-1] for char in escaped)
