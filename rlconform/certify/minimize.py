"""Shortens the plain reproducers of a run: each is run again without one call after another.

minimize ──script──▶ ScriptRunner: on the plane, it must fail as before
                                   on ``memory``, it must pass

The second run matters: without the put of the rows that it reads, a script fails on any plane.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from rlconform.certify.isolation.script_runner import ScriptEnd, ScriptRunner
from rlconform.certify.reproduce.fewer_calls import calls_of, minimized, on_reference
from rlconform.certify.results import CheckResult, RunRecord

#: Seconds for one run of a script; a script that hangs takes them all.
RUN_S = 15.0


def minimize(run: RunRecord, requirements: Sequence[str], budget_s: float) -> bool:
    """Shorten the scripts of these requirements in the run's results, within about ``budget_s``.

    Returns whether one is shorter now.
    """
    shorter = False
    ends = time.monotonic() + budget_s
    scripts = [one for id_ in requirements if (one := _shortest(run, id_)) is not None]
    scripts = [one for one in scripts if len(calls_of(one.plain_script)) > 1]
    if not scripts or budget_s <= 0:
        return False
    with ScriptRunner() as runner:
        for result in scripts:
            script = _minimized(result.plain_script, runner, ends)
            run.results[result.id] = replace(result, plain_script=script)
            shorter = shorter or script != result.plain_script
    return shorter


def _shortest(run: RunRecord, requirement: str) -> CheckResult | None:
    """Return the result whose plain script the report has for the requirement, if it has one."""
    results = (one for one in run.results.values() if one.requirement == requirement)
    scripted = [one for one in results if one.plain_script]
    return min(scripted, key=lambda one: len(one.plain_script), default=None)


def _minimized(script: str, runner: ScriptRunner, ends: float) -> str:
    def go_on() -> bool:
        return time.monotonic() < ends

    def passes(candidate: str) -> bool:
        ended = runner.run(on_reference(candidate), RUN_S)
        return ended is not None and ended.code == 0

    if not go_on() or not passes(script):
        return script
    told = runner.run(script, RUN_S)
    if told is None or told.code == 0:
        return script

    def shows(candidate: str) -> bool:
        ended = runner.run(candidate, RUN_S)
        return ended is not None and failure(ended) == failure(told) and passes(candidate)

    return minimized(script, shows, go_on)


def failure(end: ScriptEnd) -> tuple[int, str]:
    """Return what two runs have in common that fail alike: the exit code, and what was expected."""
    expected = [line for line in end.lines if line.startswith("expected ")]
    return end.code, expected[-1] if expected else ""
