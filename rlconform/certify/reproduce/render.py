"""From the calls of a failed check to a short script of client calls that a vendor can run."""

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

#: Longer histories tell a person nothing; checks of concurrency have thousands of calls.
MAX_LINES = 60
#: Rows of a column that a script prints.
MAX_ROWS = 8
#: Seconds between two calls of which the first was under way: less is no waiting of the check's.
PAUSE_S = 0.02
#: How a script attaches a client.
ATTACH = "plane.attach()  # in a process of its own, with bootstrap=False"


@dataclass(frozen=True)
class Call:
    """One client call as text.

    Attributes:
        who: Which client made it: ``client`` is the owner's, any other ran in another process.
        text: The call for people, long values shortened.
        source: The call as a line of Python; empty for calls beyond the first ``MAX_CALLS``, and a
            comment where a value of it can't be written down.
        beside: Calls of other threads that were on their way when it was made, as text.
        number: Its number, which names its result.
        flying: Numbers of the calls ``beside``.
        at: When it was made, s from the check's beginning.
        anew: Whether the plane was closed and opened again before it.
    """

    who: str
    text: str
    source: str
    concurrent: Sequence[str] = ()
    number: int = 0
    concurrent_numbers: Sequence[int] = ()
    at: float = 0.0
    after_reopen: bool = False

    def describe(self) -> str:
        """The call and the calls of other threads that ran at the same time, for people."""
        return f"{self.text}{', beside ' * bool(self.concurrent)}{' and '.join(self.concurrent)}"


@dataclass(frozen=True)
class Origin:
    """Where a script comes from, and what it runs on.

    Attributes:
        requirement: The requirement that is broken.
        check: Id of the check that says so.
        spec: The target.
        config: Its configuration, or empty for its own.
        seed: What the check's generated examples started from.
    """

    requirement: str
    check: str
    spec: str
    config: Mapping[str, Any]
    seed: int = 0


_HEADER = '''"""{id}: {sentence}

{evidence}

Why it matters: {why}

Run it beside your adapter's module; a target named on the command line takes the place of the one
below. The last lines say what is expected and what it got. Exit code 1: the defect is there; 0: it
is gone; 2: nothing could be judged. What these calls don't show, the check that failed decides:
{told_check}
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
# What follows runs in a process of its own, which may crash or hang.
'''
#: Modules whose names the source of calls and values uses.
_IMPORTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("types", ("SimpleNamespace",)),
    ("tensordict", ("NonTensorData", "NonTensorStack", "TensorDict")),
    (
        "rlconform.certify.assertions.values",
        (
            "expect_column", "expect_equal", "expect_objects", "expect_rejection",
            "expect_rows_but_first",
        ),
    ),
    ("rlconform.certify.reproduce.values", ("tensorclass_like", "unpacked")),
    ("rlconform.certify.scenarios.meta_values", ("tags_by_id",)),
    ("rlconform.certify.scenarios.partition", ("expect_ids", "expect_unreadable")),
    ("rlconform.certify.scenarios.labeled_rows", ("labeled_column",)),
    ("rlconform.contract", ("KVBatchMeta",)),
    ("rlconform.wire", ("object_array",)),
)  # fmt: skip


def show(came: Any) -> None:
    """Print what came of a call: the rows of a batch, a result, or the error."""
    if isinstance(came, Exception):
        print(f"raised {type(came).__name__}: {came}")  # noqa: T201
    elif hasattr(came, "batch_size"):
        print(f"-> batch of {tuple(came.batch_size)}")  # noqa: T201
        for key in came.keys():  # noqa: SIM118
            print(f"    {key}: {_shown(came.get(key), len(came))}")  # noqa: T201
    else:
        print(f"-> {came}")  # noqa: T201


def _shown(leaf: Any, count: int) -> str:
    """A column's first rows, as the evidence shows them."""
    from rlconform.certify.assertions.values import show_row  # noqa: PLC0415 - it imports torch
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
    origin: Origin, evidence: str, calls: Sequence[Call], judged: ScriptExpectation | None = None
) -> str:
    """A script that makes the calls, prints what comes of each, and ends with a verdict.

    Args:
        origin: Where it comes from.
        evidence: What was expected and what came, for people.
        calls: The calls of the check.
        judged: What is expected of their results, where that can be said of them alone.
    """
    races = any(call.concurrent for call in calls)
    whole = len(calls) <= MAX_LINES and all(_can_be_made(call) for call in calls)
    lines = ["client = plane.open()"]
    if whole:
        lines += _played(calls)
    else:
        lines.append("# Not all calls of the check can be written down. The first of them:")
        lines += [f"# {call.source.removeprefix('# ')}" for call in calls[:MAX_LINES]]
    if judged is not None and whole:
        lines += _judging(judged, evidence, calls)
    lines.append("plane.end()")
    imports = _imports("\n".join(line for line in lines if not line.startswith("#")))
    return "\n".join([header(origin, evidence, races), *imports, "", *lines]) + "\n"


def _imports(body: str) -> Iterator[str]:
    """The imports of what the lines use."""
    used = set(re.findall(r"\w+", body))
    yield from (line for line in ("import numpy as np", "import torch") if line.split()[-1] in used)
    for module, names in _IMPORTS:
        if held := [name for name in names if name in used]:
            yield f"from {module} import {', '.join(held)}"


def header(origin: Origin, evidence: str, races: bool) -> str:
    """A script's first lines: what is broken, and the process that has the last word."""
    requirement = load_requirements()[origin.requirement]
    return _HEADER.format(
        id=origin.requirement,
        sentence=in_docstring(requirement.sentence),
        evidence=in_docstring(evidence),
        why=in_docstring(requirement.why),
        told_check=in_docstring(origin.check),
        check=origin.check,
        spec=origin.spec,
        config=dict(origin.config),
        seed=origin.seed,
        races=races,
    )


def _can_be_made(call: Call) -> bool:
    return bool(call.source) and not call.source.startswith("#")


def _played(calls: Sequence[Call]) -> Iterator[str]:
    """The calls as lines; those that were under way beside others are begun in threads."""
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


def _judging(judged: ScriptExpectation, evidence: str, calls: Sequence[Call]) -> Iterator[str]:
    """The lines that hold the results against what the check expected."""
    made = {call.number for call in calls}
    claims = {call.number for call in calls if call.text.partition("(")[0].endswith("claim_meta")}
    if judged.number not in made:
        return
    yield ""
    for number, ids in judged.claimed.items():
        if number in claims:
            yield f"plane.expect_same_claim(r{number}, {ids!r})"
    before = [call.number for call in calls if call.number < judged.number]
    named = {
        "returned": [f"r{number}" for number in before if number not in judged.raised],
        "raised": [f"r{number}" for number in before if number in judged.raised],
    }
    shown = [f"{what}=[{', '.join(names)}]" for what, names in named.items() if names]
    yield f"with plane.expecting({', '.join([repr(split_evidence(evidence)[0]), *shown])}):"
    yield f"    {judged.source}"


def in_docstring(text: str) -> str:
    """``text`` as it can stand in a docstring of a script, whatever a plane said in it."""
    escaped = text.replace("\\", "\\\\").replace('"""', "'''")
    return "".join(char if char >= " " or char == "\n" else repr(char)[1:-1] for char in escaped)
