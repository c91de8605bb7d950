"""Runs the asynchronous trainer with each planted defect, and rightly, and judges the logs.

    TrainerCase ── a simulated run ──▶ files of events ── check-run ──▶ report
                                     judge_defect, judge_right_run ◀──────┘

The runs follow each other in the calling process: a planted class replaces the real one there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rlconform.check_run.anomaly import LONGEST_PROOF
from rlconform.check_run.judge import RunReport, judge_run
from rlconform.check_run.verdict import RuleOutcome, RuleVerdict
from rlconform.contract import ConfigError
from rlconform.events.schema import Record
from rlconform.selftest.classify import TrialOutcome, TrialResult
from rlconform.selftest.replay_trials import ReplayCase, replay_cases

if TYPE_CHECKING:  # these import the trainer, which takes seconds
    from rlconform.grpo.simulation.scenario import Scenario
    from rlconform.mutants.async_trainer.defect import TrainerDefect
    from rlconform.mutants.router_replay.defect import ReplayDefect

#: Packages that the trainer needs.
_NEEDED = ("ray", "transformers")


@dataclass(frozen=True)
class TrainerCase:
    """A run to try: with a defect, or a right one."""

    name: str
    scenario: Scenario
    defect: TrainerDefect | None = None


def trainer_defects() -> Mapping[str, TrainerDefect | ReplayDefect]:
    """Return all defects by name; ``ConfigError`` if a package is missing that they need."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the defects of the trainer need the Python packages {', '.join(missing)}: "
            'pip install "rlconform[grpo]", or leave them out with --no-check-run'
        )
    from rlconform.mutants.async_trainer.registry import all_trainer_defects  # noqa: PLC0415
    from rlconform.mutants.router_replay.registry import all_replay_defects  # noqa: PLC0415

    return {**all_trainer_defects(), **all_replay_defects()}


def trainer_cases(
    defects: Mapping[str, TrainerDefect | ReplayDefect], *, right: bool
) -> list[TrainerCase | ReplayCase]:
    """Return a case for each defect and, if wanted, each right run."""
    from rlconform.mutants.router_replay.defect import ReplayDefect  # noqa: PLC0415

    of_replay = {name: one for name, one in defects.items() if isinstance(one, ReplayDefect)}
    cases: list[TrainerCase | ReplayCase] = [
        TrainerCase(name, one.when, one)
        for name, one in defects.items()
        if not isinstance(one, ReplayDefect)
    ]
    cases += replay_cases(of_replay, right=right)
    if right:
        from rlconform.grpo.simulation.scenario import clean_scenarios  # noqa: PLC0415

        cases += [TrainerCase(f"run {name}", one) for name, one in clean_scenarios().items()]
    return cases


def run_trainer_cases(
    cases: Sequence[TrainerCase | ReplayCase], record: Callable[[TrialResult], None]
) -> list[TrialResult]:
    """Try every case; call ``record`` with each result."""
    results = []
    for case in cases:
        results.append(case.attempt() if isinstance(case, ReplayCase) else _try(case))
        record(results[-1])
    return results


def _try(case: TrainerCase) -> TrialResult:
    began = time.monotonic()
    with TemporaryDirectory() as name:
        folder = Path(name)
        if case.defect is None:
            case.scenario.run(folder)
            return judge_right_run(case.name, judge_run([folder]), time.monotonic() - began)
        end = case.defect.write_log(folder)
        return judge_defect(case.defect, judge_run([folder]), end, time.monotonic() - began)


def judge_defect(
    defect: TrainerDefect, report: RunReport, end: str = "", seconds: float = 0.0
) -> TrialResult:
    """Compare what ``check-run`` found with what the defect declares.

    ``end`` is the error with which the trainer itself has ended the run, if it did.
    """
    broken = found_by_rule(report)
    missed = [rule for rule in defect.found_by if rule not in broken]
    others = [rule for rule in broken if rule not in {*defect.found_by, *defect.may}]
    ended = f"; the trainer ended with {end.partition(':')[0]}" if end else ""
    if defect.hidden and not broken:
        kind, detail = TrialOutcome.HIDDEN, defect.hidden
    elif missed:
        kind, detail = TrialOutcome.SURVIVED, f"passed by {', '.join(missed)}{ended}"
    elif others:
        kind = TrialOutcome.KILLED_BY_OTHERS_TOO
        detail = "; ".join(f"{rule}: {broken[rule]}" for rule in others)
    else:
        kind, detail = _judge_evidence(defect, report)
        detail += ended
    return TrialResult(defect.name, kind, broken, seconds, detail)


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


def judge_right_run(name: str, report: RunReport, seconds: float = 0.0) -> TrialResult:
    """Judge a right run: all rules pass, or don't apply."""
    good = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    broken = {
        verdict.rule: "; ".join([*sentences_of(verdict)[:1], *verdict.missing[:1]])
        for verdict in report.verdicts
        if verdict.outcome not in good
    }
    kind = TrialOutcome.FALSE_ALARM if broken else TrialOutcome.PASSED
    detail = "; ".join(f"{rule}: {why}" for rule, why in broken.items())
    return TrialResult(name, kind, broken, seconds, detail)
