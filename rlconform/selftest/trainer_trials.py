"""Runs the asynchronous trainer with each planted defect, and rightly, and judges the logs.

TrainerCase ── a simulated run ──▶ files of events ── check-run ──▶ report
                                 judge_defect, judge_right_run ◀──────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from rlconform.check_run.anomaly import LONGEST_PROOF
from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome, RuleVerdict
from rlconform.events.schema import Record
from rlconform.grpo.simulation.scenario import clean_scenarios
from rlconform.mutants.async_trainer.defect import TrainerDefect
from rlconform.mutants.defect import Defect
from rlconform.selftest.classify import TrialOutcome, TrialResult, compared, judged_right
from rlconform.selftest.run_case import RunCase


class TrainerCase(RunCase[TrainerDefect]):
    """A run to try, whose log ``check-run`` judges."""

    def judge_defect(self, defect: TrainerDefect, folder: Path, end: str) -> TrialResult:
        """Judge the log of a run with a defect."""
        return judge_defect(defect, judge_run([folder]), end)

    def judge_right(self, folder: Path) -> TrialResult:
        """Judge the log of a right run."""
        return judge_right_run(self.name, judge_run([folder]))


def trainer_cases(defects: Mapping[str, Defect], *, right: bool) -> list[TrainerCase]:
    """Return a case for each defect of the trainer and, if wanted, each right run."""
    runs = {f"run {name}": one for name, one in clean_scenarios().items()} if right else {}
    return TrainerCase.of(TrainerDefect, defects, runs)


def judge_defect(defect: TrainerDefect, report: RunReport, end: str = "") -> TrialResult:
    """Compare what ``check-run`` found with what the defect declares.

    ``end`` is the error with which the trainer itself has ended the run, if it did.
    """
    evidence = partial(_judge_evidence, defect, report)
    return compared(defect, found_by_rule(report), evidence, end)


def found_by_rule(report: RunReport) -> dict[str, str]:
    """Return the rules that found something, each with its first sentence.

    ``completeness`` has no anomalies: what it says to be missing is what it finds.
    """
    return {
        verdict.rule: says
        for verdict in report.verdicts
        if (says := next(iter(sentences_of(verdict)), None)) is not None
    }


def sentences_of(verdict: RuleVerdict) -> list[str]:
    """Return what a rule found, one sentence each."""
    if verdict.outcome is RuleOutcome.FAIL:
        return [anomaly.sentence for anomaly in verdict.anomalies]
    holes = verdict.rule == "completeness" and verdict.outcome is RuleOutcome.INDETERMINATE
    return [one for one in verdict.missing if one.startswith("a whole log")] if holes else []


def _judge_evidence(defect: TrainerDefect, report: RunReport) -> tuple[TrialOutcome, str]:
    """Look for the declared text, in an anomaly with a proof that is whole and short."""
    first = defect.found_by[0]
    verdict = next(one for one in report.verdicts if one.rule == first)
    said = sentences_of(verdict)
    if not any(defect.evidence in sentence for sentence in said):
        detail = f"{first}: expected {defect.evidence!r}; got {said[0]!r}"
        return TrialOutcome.KILLED_FOR_OTHER_REASON, detail
    proofs = [one.proof for one in verdict.anomalies if defect.evidence in one.sentence]
    longest = max(map(len, proofs), default=0)
    whole = all(isinstance(record, Record) for proof in proofs for record in proof)
    if proofs and not (whole and min(map(len, proofs)) > 0 and longest <= LONGEST_PROOF):
        detail = f"{first}: expected proofs of 1 to {LONGEST_PROOF} records; got {proofs[0]}"
        return TrialOutcome.KILLED_FOR_OTHER_REASON, detail
    proven = f"{longest} record{'s' * (longest != 1)} in its proof"
    return TrialOutcome.KILLED, proven if proofs else "the log is not whole"


def judge_right_run(name: str, report: RunReport) -> TrialResult:
    """Judge a right run: all rules pass, or don't apply."""
    good = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    broken = {
        verdict.rule: "; ".join([*sentences_of(verdict)[:1], *verdict.missing[:1]])
        for verdict in report.verdicts
        if verdict.outcome not in good
    }
    return judged_right(name, broken)
