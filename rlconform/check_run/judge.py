"""``judge_run``: feeds the records of a run to all rules and returns the report.

records ─▶ rules (each event against the ledger as it was) ─▶ overview ─▶ ledger
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from rlconform.check_run.anomaly import RecordKey, RunAnomaly, key_of
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.overview import Overview
from rlconform.check_run.rule import KINDS, Handler, Rule, handlers_of
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.rules.completeness import holes
from rlconform.check_run.rules.liveness import Liveness
from rlconform.check_run.rules.staleness import StalenessWithinBound
from rlconform.check_run.step_summaries import StepSummary
from rlconform.check_run.verdict import RuleOutcome, RuleVerdict, sources_of, verdict_of
from rlconform.events.log_file import pieces_of_lines
from rlconform.events.reader import LogDefect, LogFileInfo, LogReader, log_files
from rlconform.events.schema import (
    GroupEvent,
    PromptDispatched,
    Record,
    RunEvent,
    RunFinished,
    RunStarted,
)


@dataclass(frozen=True)
class RunReport:
    """What ``check-run`` found out about a run."""

    run: str
    records: int
    verdicts: tuple[RuleVerdict, ...]
    overview: Overview
    declared: RunStarted | None
    ended: str | None = None  # reason of run_finished; None if the log has none
    files: tuple[LogFileInfo, ...] = ()
    holes: tuple[LogDefect, ...] = ()
    lags: dict[str, dict[int, int]] = field(default_factory=dict)  # groups by definition and lag
    steps: tuple[StepSummary, ...] = ()
    idle_s: dict[tuple[str, str], float] = field(default_factory=dict)  # by who and cause

    def not_clean(self, *, undecided: bool = True) -> list[str]:
        """Return what keeps rules from passing, a line each; empty for a clean run.

        Without ``undecided`` the result leaves out what the log lacks for a decision.
        """
        clean = {RuleOutcome.PASS, RuleOutcome.NOT_APPLICABLE}
        return [
            f"{verdict.rule}: {line}"
            for verdict in self.verdicts
            if verdict.outcome not in clean
            for line in (
                *(anomaly.sentence for anomaly in verdict.anomalies),
                *(verdict.missing if undecided else ()),
            )
        ]


class _Route(NamedTuple):
    """Where events of one type go."""

    of_group: bool
    handlers: tuple[Handler, ...]
    strays: tuple[Callable[[RunEvent, Record], None], ...]  # if their group isn't open


class RunJudge:
    """Judges records as they come; ``report`` ends it."""

    def __init__(self, rules: Sequence[type[Rule]] = ALL_RULES) -> None:
        self.ledger = Ledger()
        self.overview = Overview(self.ledger)
        self.rules = [rule(self.ledger) for rule in rules]
        self._run = ""
        self._records = 0
        owners = [*self.rules, self.overview, self.ledger]
        by_owner = [handlers_of(owner) for owner in owners]
        strays = tuple(rule.on_stray for rule in self.rules if hasattr(rule, "on_stray"))
        self._routes = {
            kind: _Route(
                issubclass(kind, GroupEvent),
                tuple(handlers[kind] for handlers in by_owner if kind in handlers),
                strays if issubclass(kind, GroupEvent) and kind is not PromptDispatched else (),
            )
            for kind in KINDS.values()
        }

    def feed(self, records: Sequence[Record]) -> None:
        """Judge records that follow those before in causal order."""
        routes, ledger = self._routes, self.ledger
        seen = ledger.seen
        for record in records:
            event = record.event
            kind = type(event)
            of_group, handlers, strays = routes[kind]
            group = None
            if of_group:
                group = ledger.groups.get(event.group_id)  # type: ignore[union-attr]
                if group is None:
                    for stray in strays:
                        stray(event, record)
            for handler in handlers:
                handler(event, record, group)
            seen[kind] += 1
        self._run = self._run or (records[0].run if records else "")
        self._records += len(records)

    def report(
        self,
        hosts: int,
        files: Sequence[LogFileInfo] = (),
        defects: Sequence[LogDefect] = (),
    ) -> RunReport:
        """Judge the end of the log, which several hosts may have written; return the verdicts."""
        ledger = self.ledger
        for rule in self.rules:
            rule.finish()
        open_holes = holes(list(defects), list(files), set(ledger.lost))
        ordered = hosts < 2 or ledger.run is None or ledger.run.stamped
        stale = next((r for r in self.rules if isinstance(r, StalenessWithinBound)), None)
        lively = next((r for r in self.rules if isinstance(r, Liveness)), None)
        return RunReport(
            self._run,
            self._records,
            tuple(verdict_of(rule, open_holes, ordered) for rule in self.rules),
            self.overview,
            ledger.run,
            _reason(ledger.finished),
            tuple(files),
            tuple(open_holes),
            {name: dict(counts) for name, counts in stale.lags.items()} if stale else {},
            tuple(stale.steps.in_order()) if stale else (),
            dict(lively.idle_s) if lively else {},
        )


def _reason(finished: Record | None) -> str | None:
    event = finished.event if finished is not None else None
    return event.reason if isinstance(event, RunFinished) else None


def judge_records(records: Iterable[Record], rules: Sequence[type[Rule]] = ALL_RULES) -> RunReport:
    """Judge records that are in memory and in causal order."""
    known = list(records)
    judge = RunJudge(rules)
    judge.feed(known)
    report = judge.report(len({record.source.host for record in known}))
    return _with_proofs(report, {key_of(record): record for record in known})


def judge_run(paths: Iterable[Path], rules: Sequence[type[Rule]] = ALL_RULES) -> RunReport:
    """Judge the run whose files, or folders of files, are named.

    Raises:
        ValueError: A path does not exist, or has no file of events.
        OSError: A file can't be read.
    """
    files = log_files(paths)
    reader = LogReader(files)
    judge = RunJudge(rules)
    for batch in reader.batches():
        judge.feed(batch)
    hosts = {info.source.host for info in reader.files if info.source is not None}
    report = judge.report(len(hosts), reader.files, reader.defects)
    wanted = {
        key
        for verdict in report.verdicts
        for anomaly in verdict.anomalies
        for key in sources_of(anomaly)
    }
    return _with_proofs(report, find_records(reader.files, wanted))


def find_records(files: Iterable[LogFileInfo], wanted: set[RecordKey]) -> dict[RecordKey, Record]:
    """Read records again that were not kept: those of closed groups."""
    found: dict[RecordKey, Record] = {}
    decoder = msgspec.json.Decoder(Record)
    for info in files:
        numbers = {key.seq for key in wanted if key.source == info.source}
        if not numbers:
            continue
        for line in pieces_of_lines(info.path):
            try:
                record = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                continue  # a defect that the reader has noted
            if record.seq in numbers and key_of(record) in wanted:
                found[key_of(record)] = record
    return found


def _with_proofs(report: RunReport, known: dict[RecordKey, Record]) -> RunReport:
    """Replace the names of records in proofs by the records."""
    return replace(
        report,
        verdicts=tuple(
            replace(v, anomalies=tuple(_with_proof(a, known) for a in v.anomalies))
            for v in report.verdicts
        ),
    )


def _with_proof(anomaly: RunAnomaly, known: dict[RecordKey, Record]) -> RunAnomaly:
    proof = [known.get(one, one) if isinstance(one, RecordKey) else one for one in anomaly.proof]
    records = sorted((one for one in proof if isinstance(one, Record)), key=lambda r: r.clock)
    unknown = [one for one in proof if isinstance(one, RecordKey)]
    return replace(anomaly, proof=(*unknown, *records))
