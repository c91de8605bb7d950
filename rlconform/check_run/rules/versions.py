"""The rule ``versions``: stamps say which weights were used, and engines have what they say."""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    Committed,
    Feature,
    PromptDispatched,
    Record,
    Resumed,
    RolloutStarted,
    RunStarted,
    Segment,
    Trained,
    WeightsApplied,
    WeightsPublished,
)

#: Versions whose digests are kept.
_KEPT = 64
_WRONG_STAMP = "Staleness and importance weights are computed from a version that was not used."
_NOT_SERVED = "What is validated, saved or served from an engine at the end is an older policy."
_TORN = "Samples come from weights that no training step made."


@dataclass
class _Applied:
    version: int
    record: Record


class VersionsTrue(Rule):
    """Versions grow, are applied after they are published, and no stamp is ahead of its engine."""

    name = "versions"
    title = "Version stamps are true, and all engines have the same weights"
    needs = (RunStarted, RolloutStarted, WeightsApplied)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._published: tuple[int, Record] | None = None
        self._applied: dict[str, _Applied] = {}
        self._digests: dict[int, tuple[str, Record]] = {}
        self._step: tuple[int, Record] | None = None

    def not_applicable(self) -> str | None:
        """Without weight syncs there are no versions to compare."""
        run, seen = self.ledger.run, self.ledger.seen
        if seen[WeightsApplied] or run is None or Feature.SYNC in run.features:
            return None
        return "the run declares no weight syncs (feature sync)"

    def on_weights_published(
        self, event: WeightsPublished, record: Record, _: GroupLife | None
    ) -> None:
        """Versions grow."""
        if self._published is not None and event.version <= self._published[0]:
            self.report(
                f"expected a version above {self._published[0]}; got {event.version} published",
                "Two updates share a version, so staleness is counted one too low.",
                self._published[1], record,
            )  # fmt: skip
        self._published = (event.version, record)
        self._compare_digest(event.version, event.digest, record)

    def _compare_digest(self, version: int, digest: str | None, record: Record) -> None:
        if digest is None:
            return
        first, where = self._digests.setdefault(version, (digest, record))
        if first != digest:
            self.report(
                f"expected the same weights of version {version} everywhere; got other ones in "
                f"{_name(record)} than in {_name(where)}",
                _TORN, where, record,
            )  # fmt: skip
        if len(self._digests) > _KEPT:
            del self._digests[next(iter(self._digests))]

    def on_weights_applied(
        self, event: WeightsApplied, record: Record, _: GroupLife | None
    ) -> None:
        """An engine gets what was published, and never an older version."""
        if self._published is not None and event.version > self._published[0]:
            self.report(
                f"expected {event.engine} to apply at most version {self._published[0]}, which is "
                f"the last published; got {event.version}",
                _TORN, self._published[1], record, basis=Basis.ABSENCE,
            )  # fmt: skip
        before = self._applied.get(event.engine)
        if before is not None and event.version < before.version:
            same_process = before.record.source == record.source
            if same_process:  # a process that was started anew begins with what it has
                self.report(
                    f"expected {event.engine} to go on from version {before.version}; got "
                    f"{event.version} applied",
                    "Its samples get older than their order says.",
                    before.record, record,
                )  # fmt: skip
        self._applied[event.engine] = _Applied(event.version, record)
        self._compare_digest(event.version, event.digest, record)

    def on_prompt_dispatched(
        self, event: PromptDispatched, record: Record, _: GroupLife | None
    ) -> None:
        """The trainer's version is one that it has published."""
        newest = self._published
        if newest is None:  # nothing is published yet: engines began with these
            begun_with = [(one.version, one.record) for one in self._applied.values()]
            newest = max(begun_with, key=lambda one: one[0], default=None)
        if event.version is not None and newest is not None and event.version > newest[0]:
            self.report(
                f"expected {event.group_id} to be dispatched at version {newest[0]} at most, as "
                f"no later one is published; got {event.version}",
                f"The version is counted before any engine can have it. {_WRONG_STAMP}",
                newest[1], record, basis=Basis.ABSENCE, group_ids=(event.group_id,),
            )  # fmt: skip

    def on_rollout_started(
        self, event: RolloutStarted, record: Record, _: GroupLife | None
    ) -> None:
        """The stamp of a start is the version that the engine has."""
        if event.weight_version is None:
            self.lacks("weight_version of rollout_started", event.group_id)
            return
        if event.engine is None:
            self.lacks("engine of rollout_started", event.group_id)
            return
        applied = self._applied.get(event.engine)
        if applied is None:
            if self.ledger.seen[WeightsApplied]:
                self.lacks("weights_applied before the first rollout of an engine", event.engine)
        elif event.weight_version > applied.version:
            self._report_ahead(event, event.engine, event.weight_version, applied, record)
        elif event.weight_version < applied.version and applied.record.source == record.source:
            self.report(
                f"expected row {event.row} of {event.group_id} to be stamped with version "
                f"{applied.version}, which {event.engine} has; got {event.weight_version}",
                "Samples look staler than they are: they are dropped, or held back, for nothing.",
                applied.record, record, group_ids=(event.group_id,),
            )  # fmt: skip

    def _report_ahead(
        self, event: RolloutStarted | Segment, engine: str, stamp: int, applied: _Applied,
        record: Record,
    ) -> None:  # fmt: skip
        self.report(
            f"expected at most version {applied.version}, which {engine} has applied; got row "
            f"{event.row} of {event.group_id} stamped with {stamp}",
            f"The sample is staler than its stamp says. {_WRONG_STAMP}",
            applied.record, record, basis=Basis.ABSENCE, group_ids=(event.group_id,),
        )  # fmt: skip

    def on_segment(self, event: Segment, record: Record, group: GroupLife | None) -> None:
        """Tokens have a version that the engine has, and not an older one than those before."""
        row = group.rows.get(event.row) if group is not None else None
        if row is None or row.started is None or row.attempt != event.attempt:
            return
        engine, stamp, version = row.engine, row.stamp, event.weight_version
        applied = self._applied.get(engine) if engine is not None else None
        if engine is not None and applied is not None and version > applied.version:
            self._report_ahead(event, engine, version, applied, record)
        if stamp is not None and version < stamp:
            self.report(
                f"expected row {event.row} of {event.group_id} to have tokens of version {stamp} "
                f"or later, as its start was stamped; got {version}",
                f"The sample is staler than its stamp says. {_WRONG_STAMP}",
                row.started, record, group_ids=(event.group_id,),
            )  # fmt: skip

    def on_committed(self, event: Committed, record: Record, group: GroupLife | None) -> None:
        """The versions of a group are those of its rows."""
        if group is None or (event.start_version is None and event.end_version is None):
            return
        oldest = group.oldest_row()
        if oldest is None:
            return
        pairs = (
            ("start_version", event.start_version, oldest.first_version, oldest.started),
            ("end_version", event.end_version, group.version_range()[1], oldest.ended),
        )
        for field, got, expected, proof in pairs:
            if got is not None and expected is not None and got != expected:
                if field == "start_version" and got == group.first_token_version():
                    continue  # weights changed between the start and the first token
                self.report(
                    f"expected {field} {expected} of {event.group_id}, as its rows were stamped; "
                    f"got {got}",
                    _WRONG_STAMP, proof, record,
                    basis=Basis.ABSENCE, group_ids=(event.group_id,),
                )  # fmt: skip

    def on_trained(self, event: Trained, record: Record, _: GroupLife | None) -> None:
        """Steps have no gap, and none comes again."""
        last = self._step
        if last is not None and not last[0] <= event.step <= last[0] + 1:
            self.report(
                f"expected step {last[0]} or {last[0] + 1}; got step {event.step}",
                "Schedules (learning rate, checkpoints, the end of the run) count other steps than "
                "were made.",
                last[1], record, basis=Basis.ABSENCE, group_ids=(event.group_id,),
            )  # fmt: skip
        if last is None or event.step != last[0]:
            self._step = (event.step, record)

    def at_end(self) -> None:
        """The engines of a completed run have the weights of its last step, if it declares so."""
        run, finished, last = self.ledger.run, self.ledger.completed, self.ledger.stepped
        if run is None or not run.final_sync or finished is None or last is None:
            return
        made = self.ledger.step
        version, where = self._published or (None, None)
        if version != made:
            self.report(
                f"expected version {made}, which the last step made, to be published before the "
                f"run was completed; got {'none' if version is None else version} as the last",
                _NOT_SERVED, last, where, finished, basis=Basis.ABSENCE,
            )  # fmt: skip
            return
        for engine, held in self._applied.items():
            if held.version != made and held.record.source not in self.ledger.lost:
                self.report(
                    f"expected {engine} to have version {made}, which the last step made, when "
                    f"the run was completed; got {held.version}",
                    _NOT_SERVED, where, held.record, finished, basis=Basis.ABSENCE,
                )  # fmt: skip

    def on_resumed(self, event: Resumed, record: Record, _: GroupLife | None) -> None:
        """Versions go on from the checkpoint."""
        self._step = (event.step, record)
        self._published = None
        self._applied, self._digests = {}, {}


def _name(record: Record) -> str:
    event = record.event
    return event.engine if isinstance(event, WeightsApplied) else "the trainer"
