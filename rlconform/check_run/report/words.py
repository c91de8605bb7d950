"""Records and verdicts as text, for all forms of the report."""

from __future__ import annotations

from typing import Any

import msgspec

from rlconform.check_run.anomaly import RecordKey
from rlconform.check_run.judge import RunReport
from rlconform.check_run.verdict import RuleOutcome
from rlconform.events.schema import EventSource, Record

OUTCOME_WORDS = {
    RuleOutcome.PASS: "pass",
    RuleOutcome.FAIL: "FAIL",
    RuleOutcome.INDETERMINATE: "indeterminate",
    RuleOutcome.NOT_APPLICABLE: "n/a",
}


#: What a verdict says of a run that ended before its last step.
_END_WORDS = {
    "failed": ", and it failed before its last step",
    "cancelled": ", and it was cancelled before its last step",
}


def source_in_words(source: EventSource) -> str:
    """Return a process as text, such as ``rollout 1 (host-a, pid 201)``."""
    restarted = f", incarnation {source.incarnation}" if source.incarnation else ""
    return f"{source.role} {source.rank} ({source.host}, pid {source.pid}{restarted})"


def event_in_words(record: Record) -> str:
    """Return an event as text, without fields that are at their default."""
    event = record.event
    tag = str(event.__struct_config__.tag)
    shown = []
    for field in msgspec.structs.fields(event):
        value = getattr(event, field.name)
        if field.required or value not in (field.default, None, []):
            shown.append(f"{field.name}={_plain(value)}")
    return f"{tag} {' '.join(shown)}".strip()


def _plain(value: Any) -> str:
    plain = msgspec.to_builtins(value)
    return plain if isinstance(plain, str) else msgspec.json.encode(plain).decode()


def record_in_words(record: Record | RecordKey, began: int) -> str:
    """Return a line of a proof: seconds since the first record of the proof, process, event.

    The seconds are those of the causal clock: wall clocks of several hosts may differ.
    """
    if isinstance(record, RecordKey):
        return f"(not found)  {source_in_words(record.source)} seq {record.seq}"
    seconds = (record.clock - began) / 1e6
    where = f"{source_in_words(record.source)} seq {record.seq}"
    return f"{seconds:+.3f} s  {where}  {event_in_words(record)}"


def proof_in_words(proof: tuple[Record | RecordKey, ...]) -> list[str]:
    """Return the lines of a proof."""
    began = min((one.clock for one in proof if isinstance(one, Record)), default=0)
    return [record_in_words(one, began) for one in proof]


def verdict_in_words(report: RunReport) -> str:
    """Return the verdict of the whole run as one sentence."""
    return f"{_verdict(report)}{_END_WORDS.get(report.ended or '', '')}"


def _verdict(report: RunReport) -> str:
    by_outcome: dict[RuleOutcome, list[str]] = {}
    for verdict in report.verdicts:
        by_outcome.setdefault(verdict.outcome, []).append(verdict.rule)
    if failed := by_outcome.get(RuleOutcome.FAIL):
        return f"The run breaks {len(failed)} of {len(report.verdicts)} rules: {', '.join(failed)}"
    if undecided := by_outcome.get(RuleOutcome.INDETERMINATE):
        return f"The log leaves {len(undecided)} rules undecided: {', '.join(undecided)}"
    passed = len(by_outcome.get(RuleOutcome.PASS, ()))
    return f"The run keeps all {passed} rules that apply to it"


def fates_in_words(report: RunReport) -> str:
    """Return how the groups ended, such as ``64 dispatched: 60 trained, 4 stale``."""
    fates = dict(report.overview.fates)
    dispatched = fates.pop("dispatched", 0)
    still_open = len(report.overview.ledger.groups)
    if still_open:
        fates["open"] = still_open
    ends = ", ".join(
        f"{count} {fate}" for fate, count in sorted(fates.items(), key=lambda f: -f[1])
    )
    return f"{dispatched} groups dispatched: {ends}" if ends else f"{dispatched} groups dispatched"
