"""The rule ``staleness``: no sample that is trained on exceeds the bound that the run declares.

    start      consumed - version of the first token = in flight + in queue
    newest     consumed - version of the last token  = in queue
    admission  consumed - trainer's version at dispatch
    dispatch   step - step at dispatch + 1

``consumed`` is the trainer's version when a step takes the group; each is that of the oldest row.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.check_run.step_summaries import StepSummaries
from rlconform.events.schema import (
    Committed,
    PromptDispatched,
    Record,
    Selected,
    StalenessDefinition,
    Trained,
)


class Lags(NamedTuple):
    """How stale a group is by each definition; None where the log lacks a stamp."""

    start: int | None
    newest: int | None
    admission: int | None
    dispatch: int | None

    @property
    def in_flight(self) -> int | None:
        """Versions that were made while it was generated."""
        return None if self.start is None or self.newest is None else self.start - self.newest


#: What a definition needs, for the text of what is missing.
_NEEDS = {
    StalenessDefinition.START: "weight_version of rollout_started, or start_version of committed",
    StalenessDefinition.NEWEST: "weight_version of segment, or end_version of committed",
    StalenessDefinition.ADMISSION: "version of prompt_dispatched",
    StalenessDefinition.DISPATCH: "step of prompt_dispatched",
}


def lags_of(group: GroupLife, step: int, consumed: int | None) -> Lags:
    """Compute a group's staleness in a step that takes it at version ``consumed``."""
    start, end = group.version_range()
    dispatched = group.dispatched.event if group.dispatched is not None else None
    committed = group.committed.event if group.committed is not None else None
    if isinstance(committed, Committed):
        stamped, last = committed.start_version, committed.end_version
        start = stamped if start is None or (stamped is not None and stamped < start) else start
        end = last if end is None or (last is not None and last > end) else end
    at_dispatch = dispatched if isinstance(dispatched, PromptDispatched) else None
    admission = at_dispatch.version if at_dispatch else None
    at_step = at_dispatch.step if at_dispatch else None
    return Lags(
        None if consumed is None or start is None else consumed - start,
        None if consumed is None or end is None else consumed - end,
        None if consumed is None or admission is None else consumed - admission,
        None if at_step is None else step - at_step + 1,
    )


def consumed_version(group: GroupLife, event: Trained) -> int | None:
    """Return the trainer's version when a step took the group."""
    selected = group.selected.event if group.selected is not None else None
    if isinstance(selected, Selected) and selected.version is not None:
        return selected.version
    return event.version


class StalenessWithinBound(Rule):
    """Every group is within the declared bound when it is trained on."""

    name = "staleness"
    title = "No sample that is trained on is staler than declared"

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.lags: dict[str, Counter[int]] = {name: Counter() for name in Lags._fields}
        self.steps = StepSummaries()

    def on_trained(self, event: Trained, record: Record, group: GroupLife | None) -> None:
        """Judge a group with the first of its rows."""
        if group is None or group.trained:
            return
        consumed = consumed_version(group, event)
        lags = lags_of(group, event.step, consumed)
        for counts, lag in zip(self.lags.values(), lags, strict=True):
            if lag is not None:
                counts[lag] += 1
        self.steps.add(event.step, lags.start)
        if consumed is None:
            self.lacks("version of selected or trained", event.group_id)
        if lags.newest is not None and lags.newest < 0:
            self.report(
                f"expected {event.group_id} to have no token of weights newer than the trainer's "
                f"{consumed}; got version {-lags.newest + (consumed or 0)}",
                "The trainer's version is behind, so staleness is counted too low everywhere.",
                group.committed, group.selected, record, group_ids=(event.group_id,),
            )  # fmt: skip
        run = self.ledger.run
        if run is None:
            return
        if run.staleness is not None:
            definition, bound = run.staleness.definition, run.staleness.bound
            lag = getattr(lags, definition.value)
            if lag is None:
                self.lacks(_NEEDS[definition], event.group_id)
            elif lag > bound:
                self._report_stale(group, record, lags, lag, bound)
        if run.mixed_versions is False:
            self._check_one_version(group, record, lags)

    def _report_stale(
        self, group: GroupLife, record: Record, lags: Lags, lag: int, bound: int
    ) -> None:
        oldest = group.oldest_row()
        split = ""
        if lags.in_flight is not None and lags.newest is not None:
            split = f" ({lags.in_flight} in flight, {lags.newest} in the queue)"
        self.report(
            f"expected {group.group_id} to be at most {bound} versions old; got {lag}{split}",
            "The update is further off policy than its importance weights and clips are set for.",
            self.ledger.run_record, group.dispatched, oldest.started if oldest else None,
            group.committed, group.selected, record, group_ids=(group.group_id,),
        )  # fmt: skip

    def _check_one_version(self, group: GroupLife, record: Record, lags: Lags) -> None:
        for number, row in group.rows.items():
            if row.first_version != row.last_version:
                self.report(
                    f"expected one version of the weights per sample, as declared; got row "
                    f"{number} of {group.group_id} with versions {row.first_version} to "
                    f"{row.last_version}",
                    "The sample mixes policies although the loss takes it for one.",
                    self.ledger.run_record, row.started, row.ended, record,
                    group_ids=(group.group_id,),
                )  # fmt: skip
                return
        if lags.in_flight is None:
            self.lacks("versions of the first and the last token", group.group_id)

    def at_end(self) -> None:
        """A bound must be declared."""
        if self.ledger.run is None or self.ledger.run.staleness is None:
            self.lacks("staleness in run_started")
