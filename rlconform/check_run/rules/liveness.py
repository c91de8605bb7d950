"""The rule ``liveness``: nothing waits longer than declared, and nobody waits for what is there."""

from __future__ import annotations

from collections import defaultdict
from math import inf

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.check_run.sync_progress import SyncProgress
from rlconform.events.schema import (
    Committed,
    Dropped,
    Idle,
    IdleCause,
    PromptDispatched,
    Record,
    Resumed,
    RolloutFinished,
    RolloutStarted,
    RowEvent,
    RunFinished,
    RunStarted,
    Selected,
    Trained,
    Unlogged,
    WeightsApplied,
    WeightsPublished,
)

_STALLED = "Devices stand idle; without a deadline the run hangs until its time is over."
#: The part of an idle time for which its cause must not hold, and the least such time.
_CONTRADICTED_SHARE, _CONTRADICTED_S = 0.5, 1.0
#: Seconds that generation may need to go on once all engines have the new weights.
_RESUMES_S = 30.0
#: Seconds that ready groups may need on their way to the trainer.
_UNTAKEN_S = 30.0
#: Why nothing is generated until the trainer has taken groups.
_WAITS_FOR_TRAINER = {IdleCause.GATE, IdleCause.BUFFER_FULL, IdleCause.ALL_DISPATCHED}


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
        self._sync = SyncProgress()
        self._idle: dict[str, Record] = {}  # the last idle time of each side
        self._last_rollout: Record | None = None  # the last that began or ended
        # Idle times of the trainer in which nothing is generated, each after a last rollout.
        self._unexplained: list[tuple[Record, Record]] = []
        # The trainer's idle time for another reason, after groups that nobody has taken since.
        self._untaken: tuple[Record, Record] | None = None

    def on_run_started(self, event: RunStarted, record: Record, _: GroupLife | None) -> None:
        """Deadlines hold from here."""
        self._begun = self._last_trained = self._room_since = record
        self._ready_since = None
        self._rollout_deadline_ns = 1e9 * (event.rollout_deadline_s or inf)
        if event.rollout_deadline_s is None:
            self.lacks("rollout_deadline_s in run_started")
        if event.step_deadline_s is None:
            self.lacks("step_deadline_s in run_started")

    def on_rollout_started(self, _: RolloutStarted, record: Record, __: GroupLife | None) -> None:
        """Something is generated."""
        self._last_rollout = record

    def on_rollout_finished(self, event: RowEvent, record: Record, group: GroupLife | None) -> None:
        """A rollout ends within its deadline."""
        self._last_rollout = record
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
        self._untaken = None
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

    def on_weights_published(
        self, event: WeightsPublished, _: Record, __: GroupLife | None
    ) -> None:
        """Engines get new weights."""
        self._sync.published(event.version)

    def on_weights_applied(
        self, event: WeightsApplied, record: Record, _: GroupLife | None
    ) -> None:
        """Places of groups that were trained on are free now at the latest."""
        self._unapplied = 0
        self._sync.applied(event.engine, event.version, record)
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
        self._sync, self._idle = SyncProgress(), {}

    def on_idle(self, event: Idle, record: Record, _: GroupLife | None) -> None:
        """The cause of an idle time is what the log shows."""
        self.idle_s[event.who, event.cause.value] += event.seconds
        self._idle[event.who] = record
        self._check_both_idle(record)
        self._check_generation(event, record)
        if event.who == "trainer" and event.cause is IdleCause.OTHER and self._ready_since:
            self._untaken = (self._ready_since, record)
        since, least_s = None, max(_CONTRADICTED_S, _CONTRADICTED_SHARE * event.seconds)
        if event.who == "trainer" and event.cause is IdleCause.NO_READY_GROUPS:
            since = self._ready_since
            got = f"{self.ledger.ready} ready ones, a whole step, that nobody takes"
        elif event.who == "generation" and event.cause is IdleCause.BUFFER_FULL:
            since = self._room_since
            got = f"room: {len(self.ledger.groups)} groups are open"
        elif event.who == "generation" and event.cause is IdleCause.WEIGHT_SYNC:
            since, least_s = self._sync.over_since, _RESUMES_S
            got = "the last published weights applied by all engines"
        if since is None:
            return
        contradicted = min(event.seconds, _seconds(since, record))
        if contradicted > least_s:
            self.report(
                f"expected {event.cause.value} to be why the {event.who} waits; got {got}, "
                f"for {contradicted:.1f} of {event.seconds:.1f} s",
                _STALLED, self.ledger.run_record, since, record, basis=Basis.ABSENCE,
            )  # fmt: skip

    def _check_both_idle(self, record: Record) -> None:
        """The trainer must not wait for groups while the generation waits for the trainer."""
        pair = [self._idle.get("trainer"), self._idle.get("generation")]
        idle = [(one, one.event) for one in pair if one is not None and isinstance(one.event, Idle)]
        if len(idle) < len(pair):
            return
        (trainer, waits), (generation, rests) = idle
        if waits.cause is not IdleCause.NO_READY_GROUPS or rests.cause not in _WAITS_FOR_TRAINER:
            return
        begun = max(one.wall_ns - 1e9 * event.seconds for one, event in idle)
        both = (min(trainer.wall_ns, generation.wall_ns) - begun) / 1e9
        shorter = min(waits.seconds, rests.seconds)
        if both > max(_CONTRADICTED_S, _CONTRADICTED_SHARE * shorter):
            self.report(
                f"expected groups to be generated while the trainer waits for them; got {both:.1f} "
                f"s in which nothing is generated either, because of {rests.cause.value}",
                "Each side waits for the other, so the run hangs until a watchdog ends it.",
                self.ledger.run_record, self._last_trained, trainer, generation, record,
                basis=Basis.ABSENCE,
            )  # fmt: skip

    def _check_generation(self, event: Idle, record: Record) -> None:
        """Something is generated while the trainer waits, or the generation says why not."""
        if event.who == "generation":
            begun = record.wall_ns - 1e9 * event.seconds
            self._unexplained = [one for one in self._unexplained if one[1].wall_ns < begun]
            return
        run, last, other = self.ledger.run, self._last_rollout, self._idle.get("generation")
        deadline = run.rollout_deadline_s if run is not None else None
        if deadline is None or last is None or event.cause is not IdleCause.NO_READY_GROUPS:
            return
        nothing = min(event.seconds, _seconds(last, record))
        explained = other is not None and _seconds(other, record) < nothing
        if nothing <= deadline or explained or self._ready_since is not None:
            return
        rows = [row for group in self.ledger.groups.values() for row in group.rows.values()]
        if all(row.started is None or row.ended is not None for row in rows):
            self._unexplained.append((last, record))

    def at_end(self) -> None:
        """No cause came later."""
        for last, record in self._unexplained:
            self.report(
                f"expected groups to be generated while the trainer waits for them; got "
                f"{_seconds(last, record):.0f} s in which nothing is generated, and no cause",
                _STALLED, self.ledger.run_record, last, record, basis=Basis.ABSENCE,
            )  # fmt: skip

    def on_run_finished(self, _: RunFinished, record: Record, __: GroupLife | None) -> None:
        """The last step was within the deadline too."""
        self._check_step(record)
        self._check_untaken()
        self._last_trained = None

    def _check_untaken(self) -> None:
        """The trainer is not idle, for whatever reason, until the end, with a whole step ready."""
        if self._untaken is None:
            return
        ready, idle = self._untaken
        seconds = idle.event.seconds if isinstance(idle.event, Idle) else 0.0
        waited = min(seconds, _seconds(ready, idle))
        if waited > _UNTAKEN_S:
            self.report(
                f"expected the trainer to take groups that are ready, a whole step; got it idle "
                f"for {waited:.0f} s, until the run ended",
                _STALLED, self.ledger.run_record, ready, idle, basis=Basis.ABSENCE,
            )  # fmt: skip


def _seconds(earlier: Record, later: Record) -> float:
    """Return the time between two records; of two hosts, whose wall clocks differ, at least it."""
    if earlier.source == later.source:
        return (later.mono_ns - earlier.mono_ns) / 1e9
    wall = (later.wall_ns - earlier.wall_ns) / 1e9
    if earlier.source.host == later.source.host:
        return wall
    return max(0.0, min(wall, (later.clock - earlier.clock) / 1e6))
