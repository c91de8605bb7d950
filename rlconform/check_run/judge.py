"""``judge_run``: feeds the records of a run to all rules and returns the report.

records ─▶ rules (each event against the ledger as it was) ─▶ overview ─▶ ledger
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from rlconform.check_run.anomaly import RecordKey, RunAnomaly, key_of
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.overview import Overview
from rlconform.check_run.rule import KINDS, Handler, Rule, handlers_of
from rlconform.check_run.rules import ALL_RULES
from rlconform.check_run.rules.completeness import holes
from rlconform.check_run.rules.liveness import Liveness
from rlconform.check_run.rules.staleness import StalenessWithinBound
from rlconform.check_run.verdict import RuleVerdict, sources_of, verdict_of
from rlconform.events.reader import LogDefect, LogFileInfo, LogReader, log_files
from rlconform.events.schema import GroupEvent, PromptDispatched, Record, RunEvent, RunStarted


@dataclass(frozen=True)
class RunReport:
    """What ``check-run`` found out about a run."""

    run: str
    records: int
    verdicts: tuple[RuleVerdict, ...]
    overview: Overview
    declared: RunStarted | None
    files: tuple[LogFileInfo, ...] = ()
    holes: tuple[LogDefect, ...] = ()
    lags: dict[str, dict[int, int]] | None = None  # groups by definition and staleness
    idle_s: dict[tuple[str, str], float] | None = None  # seconds by who and cause


@dataclass
class _Route:
    """Where events of one type go."""

    of_group: bool
    handlers: tuple[Handler, ...]
    strays: tuple[object, ...]


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

    def feed(self, records: Iterable[Record]) -> None:
        """Judge records that follow those before in causal order."""
        routes, seen, count = self._routes, self.ledger.seen, 0
        for record in records:
            event = record.event
            kind = type(event)
            route = routes[kind]
            group = None
            if isinstance(event, GroupEvent):
                group = self.ledger.groups.get(event.group_id)
                if group is None:
                    for stray in route.strays:
                        stray(event, record)  # type: ignore[operator]
            for handler in route.handlers:
                handler(event, record, group)
            seen[kind] += 1
            count += 1
        if count:
            self._run = record.run
        self._records += count

    def report(
        self, files: Sequence[LogFileInfo] = (), defects: Sequence[LogDefect] = ()
    ) -> RunReport:
        """Judge the end of the log, and return the verdicts."""
        ledger = self.ledger
        for rule in self.rules:
            rule.finish()
        open_holes = holes(list(defects), list(files), set(ledger.lost))
        stamped = ledger.run is None or ledger.run.stamped
        lags = next((r.lags for r in self.rules if isinstance(r, StalenessWithinBound)), None)
        idle_s = next((r.idle_s for r in self.rules if isinstance(r, Liveness)), None)
        return RunReport(
            self._run,
            self._records,
            tuple(verdict_of(rule, open_holes, stamped) for rule in self.rules),
            self.overview,
            ledger.run,
            tuple(files),
            tuple(open_holes),
            None if lags is None else {name: dict(counts) for name, counts in lags.items()},
            None if idle_s is None else dict(idle_s),
        )


def judge_records(records: Iterable[Record], rules: Sequence[type[Rule]] = ALL_RULES) -> RunReport:
    """Judge records that are in memory and in causal order."""
    known = list(records)
    judge = RunJudge(rules)
    judge.feed(known)
    return _with_proofs(judge.report(), {key_of(record): record for record in known})


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
    report = judge.report(reader.files, reader.defects)
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
        with info.path.open("rb") as lines:
            for line in lines:
                try:
                    record = decoder.decode(line)
                except msgspec.MsgspecError:
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


def kinds_by_tag() -> dict[str, type[RunEvent]]:
    """Return the classes of events by their tags."""
    return dict(KINDS)
