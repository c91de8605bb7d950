"""Turns a pytest item and its exception into the result of the check."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlconform._resources import resource_dir
from rlconform.certify.concurrency.explain import HistoryViolation
from rlconform.certify.concurrency.named_checkers import CHECKERS, REPEATED
from rlconform.certify.concurrency.operation import Operation, to_jsonl
from rlconform.certify.concurrency.race_script import race_script
from rlconform.certify.isolation.remote_client import ProcessDied
from rlconform.certify.isolation.scattering_client import Policy, policy_of
from rlconform.certify.judged_runs import JudgedRun
from rlconform.certify.plugin.plane_session import PlaneSession
from rlconform.certify.recording.recorder import Recording
from rlconform.certify.reproduce.plain_script import plain_script
from rlconform.certify.reproduce.render import Origin, render_script
from rlconform.certify.results import CheckResult, Outcome, PlannedCheck
from rlconform.certify.scenarios.block_client import NoBlocks
from rlconform.contract import LEVELS, Level, includes


class CleanUpFailed(UserWarning):
    """A warning: a check could not clear its rows; later checks use other partitions."""


_TURN = re.compile(r"\[turn\d+\]$|-turn\d+(?=\])|(?<=\[)turn\d+-")

_SUITES = resource_dir("suites")

#: The key under which an item stores the client calls of its check.
RECORDING = pytest.StashKey[Recording]()
#: The key under which an item stores the operations of its check's roles.
HISTORY = pytest.StashKey[list[Operation]]()
#: The key under which an item stores its check's training runs, judged by their events.
RUNS = pytest.StashKey[list[JudgedRun]]()


def describe(session: PlaneSession) -> dict[str, Any]:
    """Return a description of the target as plain data, for the report."""
    target = session.target
    return {
        "name": target.name,
        "vendor": target.vendor,
        "version": target.version,
        "isolation": target.isolation,
        "capabilities": dict(target.capabilities),
        "timeouts": asdict(target.timeouts),
        "declared_level": target.level,
        "level": session.level,
        "config": as_json(session.config or target.config),
    }


def as_json(value: Any) -> Any:
    """Return a configuration as JSON can hold it; values that JSON can't represent become text."""
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    known = value is None or isinstance(value, str | bool | int)
    return value if known or (isinstance(value, float) and math.isfinite(value)) else str(value)


def check_id(item: pytest.Item) -> str:
    """Return the check's path below ``suites/`` or ``tests/`` and its name; no absolute path."""
    path, _, name = item.nodeid.partition("::")
    return f"{_file_below(item.path, path)}::{name}"


@cache
def _file_below(file: Path, path: str) -> str:
    """Return the file's path below ``suites/`` or ``tests/``; pytest's is from another folder."""
    if file.is_relative_to(_SUITES):  # a node's id begins where the user's command line does
        return file.relative_to(_SUITES).as_posix()
    parts = Path(path).parts
    root = next((folder for folder in ("suites", "tests") if folder in parts), None)
    return "/".join(parts[parts.index(root) + 1 :] if root else parts)


def level_of(item: pytest.Item) -> Level:
    """Return the level whose folder below ``suites/`` holds the check."""
    folder = check_id(item).partition("/")[0]
    return next(level for level in LEVELS if level == folder)


def planned_check(
    item: pytest.Item, mark: pytest.Mark, session: PlaneSession, races: bool
) -> PlannedCheck:
    """Return the check, with the reason why level, target or options leave it out, if they do."""
    capability, needs = mark.kwargs["capability"], level_of(item)
    declared = session.target.capabilities.get(capability)
    left_out = ""
    if not includes(session.level, needs):
        left_out = f"needs level {needs}"
    elif isinstance(declared, str):
        left_out = f"the target declares no {capability}: {declared}"
    elif mark.kwargs["race"] and not races:
        left_out = "waits for an unlucky moment"
    patience = mark.kwargs["patience"]
    return PlannedCheck(check_id(item), mark.args[0], capability, needs, left_out, patience)


def ends_plane(item: pytest.Item) -> bool:
    """Whether the check closes the plane on which it runs."""
    mark = item.get_closest_marker("requirement")
    return mark is not None and mark.kwargs["ends_plane"]


def is_scattered(item: pytest.Item) -> bool:
    """Whether several processes make the calls of this run of the check."""
    callspec = getattr(item, "callspec", None)
    return bool(callspec and callspec.params.get("scattered", False))


def is_in_blocks(item: pytest.Item) -> bool:
    """Whether each row of this run of the check is a block of rows, see ``BlockClient``."""
    callspec = getattr(item, "callspec", None)
    return bool(callspec and callspec.params.get("in_blocks", False))


def scattering_policy(item: pytest.Item) -> Policy:
    """Return which process makes which call in a scattered run of the check."""
    mark = item.get_closest_marker("requirement")
    roles = mark is None or mark.kwargs["roles"]
    return policy_of(check_id(item), item.config.getoption("--rlconform-seed", 0), roles)


def turn_of(item: pytest.Item) -> int:
    """Return the number of this repetition of its check, from 0 (``--rlconform-turns``)."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("turn", 0) if callspec else 0


def drop_records(item: pytest.Item) -> None:
    """Drop what was recorded of a check that is over: pytest keeps every item to the end."""
    keys: list[pytest.StashKey[Any]] = [RECORDING, HISTORY, RUNS]
    for key in keys:
        if key in item.stash:
            del item.stash[key]


def result_of(
    item: pytest.Item,
    mark: pytest.Mark,
    excinfo: pytest.ExceptionInfo[BaseException] | None,
    recording: Recording,
    session: PlaneSession,
) -> CheckResult:
    """Return the result of a phase: its outcome, and evidence if the plane caused an exception."""
    result = CheckResult(
        check_id(item),
        mark.args[0],
        Outcome.PASS,
        mark.kwargs["capability"],
        plane_seconds=recording.plane_seconds,
        runs=item.stash.get(RUNS, []),
    )
    if excinfo is None:
        return result
    error = excinfo.value
    if isinstance(error, NoBlocks):  # a note of the report says why
        return result
    if isinstance(error, pytest.skip.Exception):
        return replace(result, outcome=Outcome.NOT_TESTED, evidence=str(error))
    operations: list[Operation] = item.stash.get(HISTORY, [])
    result = replace(
        result,
        steps=recording.lines(),
        leans_on=leans_on(mark, error),
        history=to_jsonl(operations),
    )
    if not (isinstance(error, AssertionError) or recording.raised_by_plane(error)):
        evidence = f"{type(error).__name__}: {error}"
        stacks = str(excinfo.getrepr(style="short"))
        return replace(result, outcome=Outcome.SUITE_ERROR, evidence=evidence, stacks=stacks)
    outcome = Outcome.CRASH if isinstance(error, ProcessDied) else Outcome.FAIL
    evidence = recording.error_origin(error) or str(error).strip()
    seed = item.config.getoption("--rlconform-seed", 0)
    if is_scattered(item):
        evidence += f" (calls of several processes: {scattering_policy(item).name})"
    if is_in_blocks(item):
        evidence += " (each row of the check is a block of many rows, such as r0~0, r0~1)"
    check = _TURN.sub("", result.id)  # the check's id without its turn
    origin = Origin(result.requirement, check, session.spec, session.config, seed)
    writes = item.config.getoption("rlconform_scripts")
    if isinstance(error, HistoryViolation):
        if error.checker in CHECKERS:
            evidence += f" ({REPEATED} {error.checker})"
        script = race_script(origin, error.race, evidence) if error.race and writes else ""
        steps, at_once, plain = error.lines, False, ""
    else:
        script = plain = ""
        if writes:
            expected = recording.script_expectation(error)
            script = render_script(origin, evidence, recording.calls, expected)
            plain = plain_script(origin, evidence, recording.calls, expected)
        steps, at_once = result.steps, any(call.concurrent for call in recording.calls)
    return replace(
        result,
        outcome=outcome,
        evidence=evidence,
        steps=steps,
        reproducer=script,
        plain_script=plain,
        at_once=at_once,
    )


def leans_on(mark: pytest.Mark, error: BaseException) -> list[str]:
    """Return the requirements that the failed assertion relies on, and those of the whole check."""
    raised = [error, error.__cause__]  # a generated example's failure is raised from the check's
    named = [one for each in raised for one in getattr(each, "leans_on", ())]
    named += mark.kwargs["leans_on"]
    return [one for one in dict.fromkeys(named) if one != mark.args[0]]
