"""``JudgedRun``: what check-run says about a training run of a check, rule by rule.

A check trains, ``judge_folder`` judges the events of the run, and the check's result carries the
``JudgedRun`` to the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rlconform.check_run.judge import RunReport, judge_records, judge_run
from rlconform.check_run.report.words import fates_in_words, proof_in_words, verdict_in_words
from rlconform.check_run.verdict import RuleOutcome, RuleVerdict

#: Anomalies of a rule that the certificate has; all are counted.
MOST_ANOMALIES = 10
#: What every rule lacks if a run has written nothing.
NO_EVENTS = "events: the run wrote none"


@dataclass(frozen=True)
class JudgedAnomaly:
    """An anomaly in words."""

    sentence: str  # expected ...; got ...
    impact: str
    proven: bool  # else what is missing in the log might explain it
    proof: list[str]  # the records that prove it, one line each


@dataclass(frozen=True)
class JudgedRule:
    """The outcome of one rule."""

    rule: str
    title: str
    outcome: RuleOutcome
    missing: list[str]  # what the log lacks for a decision
    reason: str  # why the rule does not apply, or ""
    count: int  # of all anomalies
    anomalies: list[JudgedAnomaly]


@dataclass(frozen=True)
class JudgedRun:
    """The verdict of check-run on one run."""

    name: str  # which run of the check it is
    verdict: str  # in a sentence
    events: int
    groups: str  # how they ended
    rules: list[JudgedRule]

    def of(self, outcome: RuleOutcome) -> list[JudgedRule]:
        """Return the rules with this outcome."""
        return [rule for rule in self.rules if rule.outcome is outcome]


def judge_folder(name: str, folder: Path) -> JudgedRun:
    """Judge the run that has written its events into the folder; none at all decide no rule."""
    if not any(folder.rglob("events-*.jsonl")):
        return judged_run(name, judge_records([]))
    return judged_run(name, judge_run([folder]))


def judged_run(name: str, report: RunReport) -> JudgedRun:
    """Return a report of check-run in the form that a certificate has."""
    events = report.records - sum(info.closed for info in report.files)  # without log_closed
    if not events:
        rules = [
            JudgedRule(v.rule, v.title, RuleOutcome.INDETERMINATE, [NO_EVENTS], "", 0, [])
            for v in report.verdicts
        ]
        return JudgedRun(name, "The run wrote no events", 0, "", rules)
    rules = [_rule(verdict) for verdict in report.verdicts]
    verdict, groups = verdict_in_words(report), fates_in_words(report)
    return JudgedRun(name, verdict, events, groups, rules)


def _rule(verdict: RuleVerdict) -> JudgedRule:
    proven = len(verdict.anomalies) - verdict.suspected
    anomalies = [
        JudgedAnomaly(one.sentence, one.impact, number < proven, proof_in_words(one.proof))
        for number, one in enumerate(verdict.anomalies[:MOST_ANOMALIES])
    ]
    return JudgedRule(
        verdict.rule, verdict.title, verdict.outcome, list(verdict.missing), verdict.reason,
        verdict.count, anomalies,
    )  # fmt: skip
