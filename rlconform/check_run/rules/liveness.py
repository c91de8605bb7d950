"""The rule ``liveness``: nothing waits longer than declared, and nobody waits for what is there."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    Committed,
    Dropped,
    Idle,
    IdleCause,
    PromptDispatched,
    Record,
    Resumed,
    RolloutFinished,
    RowEvent,
    RunFinished,
    RunStarted,
    Selected,
    Trained,
    Unlogged,
    WeightsApplied,
)

_STALLED = "Devices stand idle; without a deadline the run hangs until its time is over."
#: The part of an idle time for which its cause must not hold, and the least such time.
_CONTRADICTED_SHARE, _CONTRADICTED_S = 0.5, 1.0


class Liveness(Rule):
    """Rollouts and steps keep their deadlines, and causes of idle times are what the log shows."""

    name = "liveness"
    title = "Nothing waits longer than declared, or for what is there already"
    needs = (RunStarted, RolloutFinished, RunFinished)
    rests_on = (Unlogged.DROPPED,)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.idle_s: dict[tuple[str, str], float] = defaultdict(float)  # by who and cause
        self._begun: Record | None = None
        self._last_trained: Record | None = None
        self._last: Record | None = None
        self._ready_since: Record | None = None  # since then a whole step is ready
        self._room_since: Record | None = None  # since then there is room for a group
        self._rollout_deadline_ns = inf
        self._unapplied = 0  # groups trained on since the weights were applied

    def on_run_started(self, event: RunStarted, record: Record, _: GroupLife | None) -> None:
        """Deadlines hold from here."""
        self._begun = self._last_trained = self._room_since = record
        self._ready_since = None
        self._rollout_deadline_ns = 1e9 * (event.rollout_deadline_s or inf)
        if event.rollout_deadline_s is None:
            self.lacks("rollout_deadline_s in run_started")
        if event.step_deadline_s is None:
            self.lacks("step_deadline_s in run_started")

    def on_rollout_finished(self, event: RowEvent, record: Record, group: GroupLife | None) -> None:
        """A rollout ends within its deadline."""
        row = group.rows.get(event.row) if group is not None else None
        if row is None or row.started is None or row.attempt != event.attempt:
            return
        if record.wall_ns - row.started.wall_ns <= self._rollout_deadline_ns:
            return  # a shortcut; ``_seconds`` decides
        run, took = self.ledger.run, _seconds(row.started, record)
        if run is not None and run.rollout_deadline_s is not None and took > run.rollout_deadline_s:
            self.report(
                f"expected row {event.row} of {event.group_id} to end within "
                f"{run.rollout_deadline_s:g} s; got {took:.1f} s",
                "Its group, and perhaps the step, waits for one slow sample.",
                self.ledger.run_record, row.started, record, group_ids=(event.group_id,),
            )  # fmt: skip

    on_rollout_failed = on_rollout_finished
    on_rollout_aborted = on_rollout_finished

    def on_committed(self, _: Committed, record: Record, group: GroupLife | None) -> None:
        """Perhaps a whole step is ready now."""
        run = self.ledger.run
        new = group is None or (group.committed is None and group.waiting)
        if run is None or run.prompts_per_step is None or self._ready_since is not None:
            return
        if run.prompts_for_step:
            return  # what is ready may be for later steps
        if self.ledger.ready + new >= run.prompts_per_step:
            self._ready_since = record

    def on_selected(self, _: Selected, __: Record, group: GroupLife | None) -> None:
        """Perhaps no whole step is ready any more."""
        self._left(group)

    def on_dropped(self, _: Dropped, record: Record, group: GroupLife | None) -> None:
        """Perhaps no whole step is ready any more, and there is room."""
        self._left(group)
        self._see_room(record, -1 if group is not None else 0)

    def _left(self, group: GroupLife | None) -> None:
        run = self.ledger.run
        ready = self.ledger.ready - (
            group is not None and group.waiting and group.committed is not None
        )
        if run is None or run.prompts_per_step is None or ready < run.prompts_per_step:
            self._ready_since = None

    def on_prompt_dispatched(
        self, _: PromptDispatched, record: Record, group: GroupLife | None
    ) -> None:
        """Perhaps there is no room any more."""
        self._see_room(record, 1 if group is None else 0)

    def on_weights_applied(self, _: WeightsApplied, record: Record, __: GroupLife | None) -> None:
        """Places of groups that were trained on are free now at the latest."""
        self._unapplied = 0
        self._see_room(record, 0)

    def _see_room(self, record: Record, more: int) -> None:
        run = self.ledger.run
        if run is None or run.capacity is None:
            return
        if len(self.ledger.groups) + more + self._unapplied >= run.capacity:
            self._room_since = None
        elif self._room_since is None:
            self._room_since = record

    def on_trained(self, _: Trained, record: Record, group: GroupLife | None) -> None:
        """Steps follow each other within the deadline."""
        self._check_step(record)
        self._last_trained = record
        self._left(group)
        self._unapplied += group is not None and not group.trained

    def _check_step(self, record: Record) -> None:
        run, last = self.ledger.run, self._last_trained
        if run is None or run.step_deadline_s is None or last is None:
            return
        waited = _seconds(last, record)
        if waited > run.step_deadline_s:
            ready = self.ledger.ready
            flight = self.ledger.waiting - ready
            why = (
                f"{ready} groups are ready and nobody takes them"
                if run.prompts_per_step is not None and ready >= run.prompts_per_step
                else f"{ready} groups are ready and {flight} in flight"
            )
            self.report(
                f"expected an update every {run.step_deadline_s:g} s; got none for {waited:.0f} s, "
                f"while {why}",
                _STALLED, self.ledger.run_record, last, self._ready_since, record,
                basis=Basis.ABSENCE,
            )  # fmt: skip

    def on_resumed(self, _: Resumed, record: Record, __: GroupLife | None) -> None:
        """The time between a crash and the restart is nobody's."""
        self._last_trained = self._room_since = record
        self._ready_since, self._unapplied = None, 0

    def on_idle(self, event: Idle, record: Record, _: GroupLife | None) -> None:
        """The cause of an idle time is what the log shows."""
        self.idle_s[event.who, event.cause.value] += event.seconds
        since = None
        if event.who == "trainer" and event.cause is IdleCause.NO_READY_GROUPS:
            since = self._ready_since
            got = f"{self.ledger.ready} ready ones, a whole step, that nobody takes"
        elif event.who == "generation" and event.cause is IdleCause.BUFFER_FULL:
            since = self._room_since
            got = f"room: {len(self.ledger.groups)} groups are open"
        if since is None:
            return
        contradicted = min(event.seconds, _seconds(since, record))
        if contradicted > max(_CONTRADICTED_S, _CONTRADICTED_SHARE * event.seconds):
            self.report(
                f"expected {event.cause.value} to be why the {event.who} waits; got {got}, "
                f"for {contradicted:.1f} of {event.seconds:.1f} s",
                _STALLED, self.ledger.run_record, since, record, basis=Basis.ABSENCE,
            )  # fmt: skip

    def on_run_finished(self, _: RunFinished, record: Record, __: GroupLife | None) -> None:
        """The last step was within the deadline too."""
        self._check_step(record)
        self._last_trained = None


def _seconds(earlier: Record, later: Record) -> float:
    """Return the time between two records; of two hosts, whose wall clocks differ, at least it."""
    if earlier.source == later.source:
        return (later.mono_ns - earlier.mono_ns) / 1e9
    wall = (later.wall_ns - earlier.wall_ns) / 1e9
    if earlier.source.host == later.source.host:
        return wall
    return max(0.0, min(wall, (later.clock - earlier.clock) / 1e6))
