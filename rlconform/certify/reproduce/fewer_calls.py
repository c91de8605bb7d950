"""Leaves out the calls of a plain reproducer that the defect does not need.

script ──▶ for each call, the last first: the script without it ──▶ shows(script)? keep it
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

#: A call of a plain script, with the name of its result.
_CALL = re.compile(r"^(r\d+) = attempt\(", re.M)
#: The line that compares the earlier results with those of the check.
_BEFORE = re.compile(r"^went_as_before\(.*\)$", re.M)
#: The vendor's module, and how the script opens the plane.
_IMPORT = re.compile(r"^(sys\.path\.insert\(0, \"\"\).*\n)from \S+ import \w+$", re.M)
_TARGET = re.compile(r"^target = .*$", re.M)
_CLIENT = re.compile(r"^client = getattr\(target, .*$", re.M)


def minimized(script: str, shows: Callable[[str], bool], go_on: Callable[[], bool]) -> str:
    """Return the script without the calls that ``shows`` does not need.

    Args:
        script: A plain reproducer.
        shows: Whether a script shows the defect of the original; it runs the script.
        go_on: Whether there is time for one more run.
    """
    for name in reversed(calls_of(script)):
        shorter = without(script, name)
        if shorter is None:
            continue
        if not go_on():
            break
        if shows(shorter):
            script = shorter
    return script


def calls_of(script: str) -> list[str]:
    """Return the names of the results of the script's calls, in order."""
    return _CALL.findall(script)


def without(script: str, name: str) -> str | None:
    """Return the script without the call whose result has this name; None if others need it."""
    lines = [line for line in script.split("\n") if not line.startswith(f"{name} = attempt(")]
    shorter = _BEFORE.sub(lambda found: _fewer_results(found[0], name), "\n".join(lines))
    return None if re.search(rf"\b{name}\b", shorter) else shorter


def _fewer_results(line: str, name: str) -> str:
    """Return the line ``went_as_before([...], [...], [...])`` without the result of this name."""
    call = ast.parse(line, mode="eval").body
    assert isinstance(call, ast.Call)
    for listed in call.args:
        assert isinstance(listed, ast.List)
        listed.elts = [one for one in listed.elts if name not in _names_in(one)]
    return ast.unparse(call)


def _names_in(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def on_reference(script: str) -> str:
    """Return the script with the plane ``memory`` in place of the vendor's."""
    script = _IMPORT.sub(r"\1from rlconform.backends.memory import TARGET", script)
    script = _TARGET.sub("target = TARGET", script)
    return _CLIENT.sub("client = target.open(target.config, True)", script)
