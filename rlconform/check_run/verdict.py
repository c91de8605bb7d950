"""``RuleVerdict``: what a rule decides about a run, from what it found and what is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rlconform._exit_codes import ExitCode
from rlconform.check_run.anomaly import Basis, RecordKey, RunAnomaly
from rlconform.check_run.rule import Rule
from rlconform.events.log_file import LogDefect


class RuleOutcome(StrEnum):
    """What a rule decides; only a whole log passes."""

    PASS = "pass"
    FAIL = "fail"
    INDETERMINATE = "indeterminate"  # the log lacks something that the decision needs
    NOT_APPLICABLE = "not_applicable"  # the run declares that it does not have it


@dataclass(frozen=True)
class RuleVerdict:
    """The outcome of one rule, with its reasons."""

    rule: str
    title: str
    outcome: RuleOutcome
    anomalies: tuple[RunAnomaly, ...]  # proven ones first
    count: int  # of all anomalies, kept or not
    missing: tuple[str, ...]  # what the log lacks, one text each
    suspected: int = 0  # anomalies, at the end, that what is missing might explain
    reason: str = ""  # why the rule does not apply


def verdict_of(rule: Rule, holes: Sequence[LogDefect], ordered: bool) -> RuleVerdict:
    """Decide. ``holes`` are defects of the log.

    ``ordered`` says that the order of all records is known: hosts exchange clocks, or there is one.
    """
    proven = [one for one in rule.anomalies if _proves(one, bool(holes), ordered)]
    suspected = [one for one in rule.anomalies if one not in proven]
    missing = [_in_words(what, *found) for what, found in rule.missing.items()]
    if holes:
        missing.insert(0, _holes_in_words(holes))
    if suspected and not holes:
        missing.append("clocks in the messages between hosts (stamped in run_started)")
    reason = rule.not_applicable() if not rule.anomalies else None
    if proven:
        outcome = RuleOutcome.FAIL
    elif reason is not None:
        outcome, missing = RuleOutcome.NOT_APPLICABLE, []
    elif missing or suspected:
        outcome = RuleOutcome.INDETERMINATE
    else:
        outcome = RuleOutcome.PASS
    return RuleVerdict(
        rule.name, rule.title, outcome, (*proven, *suspected), rule.count, tuple(missing),
        len(suspected), reason or "",
    )  # fmt: skip


def _proves(anomaly: RunAnomaly, holes: bool, ordered: bool) -> bool:
    """Whether the records prove the anomaly, whatever the log does not show.

    Without a known order, what is absent before a record may be in the file of another host.
    """
    if anomaly.basis is Basis.ABSENCE and (holes or not ordered):
        return False
    return ordered or len({one.source.host for one in anomaly.proof}) < 2


def _in_words(what: str, count: int, example: str) -> str:
    if count == 1 and not example:
        return what
    first = f", first {example}" if example and count > 1 else f", {example}" if example else ""
    return f"{what} ({count} times{first})" if count > 1 else f"{what} ({example})"


def _holes_in_words(holes: Sequence[LogDefect]) -> str:
    first = holes[0]
    more = f" and {len(holes) - 1} more" if len(holes) > 1 else ""
    return f"a whole log: {first.path.name}: {first.message}{more}"


def exit_code(verdicts: Sequence[RuleVerdict], allow_indeterminate: bool) -> ExitCode:
    """Return the exit code: success only if every rule that applies passes."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if outcomes <= {RuleOutcome.NOT_APPLICABLE}:
        return ExitCode.NOTHING_RAN
    allowed = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
    if allow_indeterminate:
        allowed.add(RuleOutcome.INDETERMINATE)
    return ExitCode.SUCCESS if outcomes <= allowed else ExitCode.FAILURE


def sources_of(anomaly: RunAnomaly) -> list[RecordKey]:
    """Return the names of records of a proof that have to be read again."""
    return [one for one in anomaly.proof if isinstance(one, RecordKey)]
