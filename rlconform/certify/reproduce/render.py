"""Renders the calls of a failed check as a short script, for the plane's vendor to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from rlconform.certify.reproduce.verdict import split_evidence
from rlconform.contract import load_requirements

if TYPE_CHECKING:
    from rlconform.certify.reproduce.expectations import ScriptExpectation

#: A script makes at most this many calls; longer ones are hard to read.
MAX_LINES = 60
#: The line of a script that lacks calls of the check, and so runs the check.
NOT_ALL = "# Not all calls of the check can be written down. The first of them:"
#: A script prints at most this many rows of a column.
MAX_ROWS = 8
#: A script repeats pauses of the check during another call if they are longer than this, s.
PAUSE_S = 0.02
#: How a script attaches a client.
ATTACH = "plane.attach()  # in a process of its own, with bootstrap=False"


@dataclass(frozen=True)
class Call:
    """One client call as text.

    ``source`` is the call as a line of Python: empty for calls beyond the first ``MAX_CALLS``, and
    a comment if an argument has no source.
    """

    who: str  # the client that made it: ``client`` is the owner's, others are of other processes
    text: str  # the call as readable text, long values shortened
    source: str
    concurrent: Sequence[str] = ()  # calls of other threads that ran when it was made, as text
    number: int = 0  # names its result
    concurrent_numbers: Sequence[int] = ()  # of the concurrent calls
    at: float = 0.0  # when it was made, s from the start of the check
    after_reopen: bool = False  # whether the plane was closed and opened again just before it

    def describe(self) -> str:
        """Return the call and the calls of other threads that ran meanwhile, as readable text."""
        return f"{self.text}{', beside ' * bool(self.concurrent)}{' and '.join(self.concurrent)}"


@dataclass(frozen=True)
class Origin:
    """The failure that a script repeats, and the target on which it runs."""

    requirement: str  # id of the broken requirement
    check: str  # id of the check that failed
    spec: str  # the target
    config: Mapping[str, Any]  # of the target; empty for its default
    seed: int = 0  # of the check's generated examples


_HEADER = '''"""{id}: {sentence}

{evidence}

Why it matters: {why}

Run it in the folder of your adapter's module. A target on the command line replaces the one below.
The last lines print what was expected and what it got. Exit code 1: the defect is there; 0: it is
gone; 2: the script could not decide. If these calls don't show the defect, it runs the check
{check_in_docstring}
"""

from rlconform.certify.reproduce import Reproducer

plane = Reproducer(
    {spec!r},
    {config!r},
    requirement={id!r},
    check={check!r},
    seed={seed},
    races={races},
)
attempt, begin, finish = plane.attempt, plane.begin, plane.finish
# The lines below run in a child process, which may crash or hang.
'''
#: What scripts import, by module. Each script imports the names that it uses.
_IMPORTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("types", ("SimpleNamespace",)),
    ("tensordict", ("NonTensorData", "NonTensorStack", "TensorDict")),
    (
        "rlconform.certify.assertions.expect",
        (
            "expect_column", "expect_equal", "expect_objects", "expect_rejection",
            "expect_rows_but_first",
        ),
    ),
    ("rlconform.certify.reproduce.call_source", ("tensorclass_like",)),
    ("rlconform.certify.reproduce.tensor_source", ("unpacked",)),
    ("rlconform.certify.scenarios.normalize_metas", ("tags_by_id",)),
    ("rlconform.certify.scenarios.partition", ("expect_ids", "expect_unreadable")),
    ("rlconform.certify.scenarios.labeled_rows", ("labeled_column",)),
    ("rlconform.contract", ("KVBatchMeta",)),
    ("rlconform.wire", ("object_array",)),
)  # fmt: skip


def show(result: Any) -> None:
    """Print the result of a call: the rows of a batch, another value, or the error."""
    if isinstance(result, Exception):
        print(f"raised {type(result).__name__}: {result}")  # noqa: T201
    elif hasattr(result, "batch_size"):
        print(f"-> batch of {tuple(result.batch_size)}")  # noqa: T201
        for key in result.keys():  # noqa: SIM118
            print(f"    {key}: {_first_rows(result.get(key), len(result))}")  # noqa: T201
    else:
        print(f"-> {result}")  # noqa: T201


def _first_rows(leaf: Any, count: int) -> str:
    """Return a column's first rows, formatted as in the evidence."""
    from rlconform.certify.assertions.expect import show_row  # noqa: PLC0415 - it imports torch
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
    origin: Origin, evidence: str, calls: Sequence[Call], expected: ScriptExpectation | None = None
) -> str:
    """Return a script that makes the calls, prints each result, and ends with a verdict.

    ``expected`` is what the script expects of a result, if the calls alone can show the failure.
    """
    races = any(call.concurrent for call in calls)
    whole = len(calls) <= MAX_LINES and all(_can_be_made(call) for call in calls)
    lines = ["client = plane.open()"]
    if whole:
        lines += _call_lines(calls)
    else:
        lines.append(NOT_ALL)
        lines += [f"# {call.source.removeprefix('# ')}" for call in calls[:MAX_LINES]]
    if expected is not None and whole:
        lines += _expectation_lines(expected, evidence, calls)
    lines.append("plane.end()")
    imports = _imports("\n".join(line for line in lines if not line.startswith("#")))
    return "\n".join([header(origin, evidence, races), *imports, "", *lines]) + "\n"


def _imports(body: str) -> Iterator[str]:
    """Yield the import lines for the names that ``body`` uses."""
    used = set(re.findall(r"\w+", body))
    yield from (line for line in ("import numpy as np", "import torch") if line.split()[-1] in used)
    for module, names in _IMPORTS:
        if held := [name for name in names if name in used]:
            yield f"from {module} import {', '.join(held)}"


def header(origin: Origin, evidence: str, races: bool) -> str:
    """Return a script's first lines: its docstring, and the creation of its ``Reproducer``."""
    requirement = load_requirements()[origin.requirement]
    return _HEADER.format(
        id=origin.requirement,
        sentence=in_docstring(requirement.sentence),
        evidence=in_docstring(evidence),
        why=in_docstring(requirement.why),
        check_in_docstring=in_docstring(origin.check),
        check=origin.check,
        spec=origin.spec,
        config=dict(origin.config),
        seed=origin.seed,
        races=races,
    )


def _can_be_made(call: Call) -> bool:
    return bool(call.source) and not call.source.startswith("#")


def _call_lines(calls: Sequence[Call]) -> Iterator[str]:
    """Yield the lines of the calls. A call that others overlapped begins in a thread."""
    overlapping = {number for call in calls for number in call.concurrent_numbers}
    opened, last_at = {"client"}, 0.0
    open_calls: list[int] = []
    first_at = calls[0].at if calls else 0.0
    for call in calls:
        for number in [n for n in open_calls if n not in call.concurrent_numbers]:
            open_calls.remove(number)
            yield f"r{number} = finish(r{number})"
        if call.who not in opened:
            opened.add(call.who)
            yield f"{call.who} = {ATTACH}"
        elif call.after_reopen:
            yield f"{call.who} = plane.reopen()"
        if call.concurrent_numbers and call.at - last_at > PAUSE_S:
            yield f"plane.not_before({call.at - first_at:.2f})"
        last_at = call.at
        if call.number in overlapping:
            open_calls.append(call.number)
            yield call.source.replace("= attempt(", "= begin(", 1)
        else:
            yield call.source
    for number in open_calls:
        yield f"r{number} = finish(r{number})"


def _expectation_lines(
    expected: ScriptExpectation, evidence: str, calls: Sequence[Call]
) -> Iterator[str]:
    """Yield the lines that compare a result with what the check expected."""
    made = {call.number for call in calls}
    claims = {call.number for call in calls if call.text.partition("(")[0].endswith("claim_meta")}
    if expected.number not in made:
        return
    yield ""
    for number, ids in expected.claimed.items():
        if number in claims:
            yield f"plane.expect_same_claim(r{number}, {ids!r})"
    before = [call.number for call in calls if call.number < expected.number]
    named = {
        "returned": [f"r{number}" for number in before if number not in expected.raised],
        "raised": [f"r{number}" for number in before if number in expected.raised],
    }
    shown = [f"{what}=[{', '.join(names)}]" for what, names in named.items() if names]
    yield f"with plane.expecting({', '.join([repr(split_evidence(evidence)[0]), *shown])}):"
    yield f"    {expected.source}"


def in_docstring(text: str) -> str:
    """Return ``text``, which may be anything that a plane returned, escaped for a docstring."""
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    return "".join(char if char >= " " or char == "\n" else repr(char)[1:-1] for char in escaped)
