"""Runs a step with router replay with each planted defect, and rightly, and judges the traces.

ReplayCase ── a step in this process ──▶ trace ── check-r3 ──▶ sentences
                        judge_replay, judge_right_replay ◀─────────┘
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rlconform.grpo.router_replay.check import TraceVerdict, check_trace
from rlconform.grpo.router_replay.trace_records import read_trace
from rlconform.mutants.defect import Defect
from rlconform.selftest.classify import TrialOutcome, TrialResult

if TYPE_CHECKING:  # these import the trainer, which takes seconds
    from rlconform.grpo.simulation.replay_step import ReplayScenario
    from rlconform.mutants.router_replay.defect import ReplayDefect

#: The name of what finds these defects, beside those of the rules of ``check-run``.
CHECK_R3 = "check_r3"


@dataclass(frozen=True)
class ReplayCase:
    """A step to try: with a defect, or a right one."""

    name: str
    scenario: ReplayScenario
    defect: ReplayDefect | None = None

    def attempt(self) -> TrialResult:
        """Run the step and judge its trace."""
        began = time.monotonic()
        with TemporaryDirectory() as name:
            folder = Path(name)
            if self.defect is None:
                self.scenario.run(folder)
                return judge_right_replay(self.name, _judged(folder), time.monotonic() - began)
            end = self.defect.write_trace(folder)
            return judge_replay(self.defect, _judged(folder), end, time.monotonic() - began)


def replay_cases(defects: Mapping[str, Defect], *, right: bool) -> list[ReplayCase]:
    """Return a case for each defect of router replay and, if wanted, each right step."""
    from rlconform.mutants.router_replay.defect import ReplayDefect  # noqa: PLC0415

    cases = [
        ReplayCase(name, one.when, one)
        for name, one in defects.items()
        if isinstance(one, ReplayDefect)
    ]
    if right:
        from rlconform.grpo.simulation.replay_step import REPLAY_SCENARIOS  # noqa: PLC0415

        cases += [ReplayCase(f"step {name}", one) for name, one in REPLAY_SCENARIOS.items()]
    return cases


def _judged(folder: Path) -> TraceVerdict:
    return check_trace(read_trace(folder))


def judge_replay(
    defect: ReplayDefect, verdict: TraceVerdict, end: str = "", seconds: float = 0.0
) -> TrialResult:
    """Compare what ``check-r3`` found with what the defect declares.

    ``end`` is the error with which the step itself has ended, if it did.
    """
    ended = f"the trainer ended with {end.partition(':')[0]}" if end else ""
    broken = {CHECK_R3: verdict.failures[0]} if verdict.failures else {}
    if not broken:
        kind, detail = TrialOutcome.SURVIVED, f"passed by {CHECK_R3} {ended}".rstrip()
    elif not any(defect.evidence in sentence for sentence in verdict.failures):
        kind = TrialOutcome.KILLED_FOR_OTHER_REASON
        detail = f"{CHECK_R3}: expected {defect.evidence!r}; got {verdict.failures[0]!r}"
    else:
        kind, detail = TrialOutcome.KILLED, ended
    return TrialResult(defect.name, kind, broken, seconds, detail)


def judge_right_replay(name: str, verdict: TraceVerdict, seconds: float = 0.0) -> TrialResult:
    """Judge a right step: ``check-r3`` finds nothing."""
    if not verdict.failures:
        return TrialResult(name, TrialOutcome.PASSED, {}, seconds, "")
    broken = {CHECK_R3: verdict.failures[0]}
    return TrialResult(name, TrialOutcome.FALSE_ALARM, broken, seconds, verdict.failures[0])
