"""Runs a step with router replay with each planted defect, and rightly, and judges the traces.

ReplayCase ── a step in this process ──▶ trace ── check-r3 ──▶ sentences
                        judge_replay, judge_right_replay ◀─────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rlconform.grpo.router_replay.check import TraceVerdict, check_trace
from rlconform.grpo.router_replay.trace_records import read_trace
from rlconform.grpo.simulation.replay_step import REPLAY_SCENARIOS
from rlconform.mutants.defect import Defect
from rlconform.mutants.router_replay.defect import ReplayDefect
from rlconform.selftest.classify import TrialOutcome, TrialResult, compared, judged_right
from rlconform.selftest.rule_matrix import CHECK_R3
from rlconform.selftest.run_case import RunCase


class ReplayCase(RunCase[ReplayDefect]):
    """A step to try, whose trace ``check-r3`` judges."""

    def judge_defect(self, defect: ReplayDefect, folder: Path, end: str) -> TrialResult:
        """Judge the trace of a step with a defect."""
        return judge_replay(defect, _judged(folder), end)

    def judge_right(self, folder: Path) -> TrialResult:
        """Judge the trace of a right step."""
        return judge_right_replay(self.name, _judged(folder))


def replay_cases(defects: Mapping[str, Defect], *, right: bool) -> list[ReplayCase]:
    """Return a case for each defect of router replay and, if wanted, each right step."""
    steps = {f"step {name}": one for name, one in REPLAY_SCENARIOS.items()} if right else {}
    return ReplayCase.of(ReplayDefect, defects, steps)


def _judged(folder: Path) -> TraceVerdict:
    return check_trace(read_trace(folder))


def _found(verdict: TraceVerdict) -> dict[str, str]:
    return {CHECK_R3: verdict.failures[0]} if verdict.failures else {}


def judge_replay(defect: ReplayDefect, verdict: TraceVerdict, end: str = "") -> TrialResult:
    """Compare what ``check-r3`` found with what the defect declares.

    ``end`` is the error with which the step itself has ended, if it did.
    """

    def evidence() -> tuple[TrialOutcome, str]:
        if any(defect.evidence in sentence for sentence in verdict.failures):
            return TrialOutcome.KILLED, ""
        detail = f"{CHECK_R3}: expected {defect.evidence!r}; got {verdict.failures[0]!r}"
        return TrialOutcome.KILLED_FOR_OTHER_REASON, detail

    return compared(defect, _found(verdict), evidence, end)


def judge_right_replay(name: str, verdict: TraceVerdict) -> TrialResult:
    """Judge a right step: ``check-r3`` finds nothing."""
    return judged_right(name, _found(verdict))
