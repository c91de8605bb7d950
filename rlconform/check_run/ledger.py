"""``Ledger``: every group of the run and where it is; rules read it before each event changes it.

    unknown ── prompt_dispatched ──▶ open ── trained (all rows) ──▶ closed: TRAINED
                                      └───── dropped ─────────────▶ closed: DROPPED
    resumed: closed and open groups are again as they were when the checkpoint was saved

Memory holds the open groups, and 24 to 48 bytes of each closed one.
"""

from __future__ import annotations

from array import array

from rlconform.check_run.checkpoint_mark import CheckpointMark, Totals
from rlconform.check_run.closed_ids import ClosedIds, Fate
from rlconform.check_run.lives import GroupLife, RowLife
from rlconform.events.schema import (
    AnyEvent,
    CheckpointSaved,
    Cleared,
    Committed,
    Dequeued,
    Dropped,
    EventSource,
    GroupEvent,
    ProcessLost,
    PromptDispatched,
    Queued,
    Record,
    Resumed,
    RewardComputed,
    RewardFailed,
    RolloutAborted,
    RolloutFailed,
    RolloutFinished,
    RolloutStarted,
    RowEvent,
    RunFinished,
    RunStarted,
    Segment,
    Selected,
    Trained,
)

#: Checkpoints that a run can be resumed from while it is judged.
KEPT_CHECKPOINTS = 8


class Ledger:
    """Follows all groups; ``on_<type of event>`` methods change it."""

    def __init__(self) -> None:
        self.run: RunStarted | None = None
        self.run_record: Record | None = None
        self.groups: dict[str, GroupLife] = {}
        self.closed = ClosedIds()
        self.trained_prompts = ClosedIds()  # only if the run declares prompts_once
        self.totals = Totals()
        self.waiting = 0  # open groups that no step has taken
        self.ready = 0  # of those, the committed ones
        self.checkpoints: list[CheckpointMark] = []
        self.awaiting: dict[str, GroupLife] = {}  # saved in flight, not dispatched again yet
        self.resumes = 0
        self.lost: dict[EventSource, Record] = {}
        self.finished: Record | None = None
        self.step = 0  # the last one that was trained, or that the run was resumed from
        self.stepped: Record | None = None  # what says so
        self.seen: dict[type, int] = dict.fromkeys(AnyEvent.__args__, 0)  # the judge counts

    def on_run_started(self, event: RunStarted, record: Record, _: GroupLife | None) -> None:
        """The run begins or goes on."""
        self.run, self.run_record, self.finished = event, record, None
        if not self.checkpoints:  # a run may crash before its first checkpoint, and begin again
            self.checkpoints = [CheckpointMark(record, 0, {}, Totals())]

    def on_run_finished(self, _: RunFinished, record: Record, __: GroupLife | None) -> None:
        """The run is over."""
        self.finished = record

    def on_process_lost(self, event: ProcessLost, record: Record, _: GroupLife | None) -> None:
        """A process is dead."""
        self.lost[event.lost] = record

    def on_prompt_dispatched(
        self, event: PromptDispatched, record: Record, group: GroupLife | None
    ) -> None:
        """A group is open from now on."""
        if group is not None:
            self._leave(group)
        self.groups[event.group_id] = GroupLife(event.group_id, record)
        self.waiting += 1
        self.totals.dispatched += 1
        if self.awaiting:
            for waits in [g for g in self.awaiting.values() if g.prompt_id == event.prompt_id]:
                del self.awaiting[waits.group_id]

    def _opened(
        self, event: GroupEvent, record: Record, group: GroupLife | None
    ) -> GroupLife | None:
        """Return the group of an event; one of an unknown group opens it, of a closed one not."""
        if group is None:
            if self.closed.get(event.group_id) is not None:
                return None
            group = self.groups[event.group_id] = GroupLife(event.group_id, record)
            self.waiting += 1
        return group

    def _row(self, event: RowEvent, record: Record, group: GroupLife | None) -> RowLife | None:
        """Return the row of an event; None if the event is late or its group is closed."""
        if group is None:
            group = self._opened(event, record, group)
            if group is None:
                return None
        row = group.rows.get(event.row)
        if row is None or event.attempt > row.attempt:
            row = group.rows[event.row] = RowLife(event.attempt)
            return row
        return row if event.attempt == row.attempt else None

    def on_rollout_started(
        self, event: RolloutStarted, record: Record, group: GroupLife | None
    ) -> None:
        """A row is generated, or goes on after it was aborted."""
        row = self._row(event, record, group)
        if row is not None:
            version = event.weight_version
            row.started, row.ended, row.finished = record, None, False
            row.engine, row.stamp = event.engine, version
            if version is not None and version != row.last_version:
                row.saw_version(version)

    def on_segment(self, event: Segment, record: Record, group: GroupLife | None) -> None:
        """A row has more tokens."""
        row = self._row(event, record, group)
        if row is not None:
            row.tokens += event.tokens
            if row.token_version is None:
                row.token_version = event.weight_version
            if event.weight_version != row.last_version:
                row.saw_version(event.weight_version)

    def on_rollout_finished(
        self, event: RolloutFinished, record: Record, group: GroupLife | None
    ) -> None:
        """A row is complete."""
        row = self._row(event, record, group)
        if row is not None:
            version = event.weight_version
            row.ended, row.finished = record, True
            row.tokens = event.tokens or row.tokens
            if version is not None and version != row.last_version:
                row.saw_version(version)

    def on_rollout_failed(
        self, event: RolloutFailed | RolloutAborted, record: Record, group: GroupLife | None
    ) -> None:
        """A row's attempt is over."""
        row = self._row(event, record, group)
        if row is not None:
            row.ended, row.finished = record, False
            row.tokens = event.tokens or row.tokens

    on_rollout_aborted = on_rollout_failed

    def on_reward_computed(
        self, event: RewardComputed, record: Record, group: GroupLife | None
    ) -> None:
        """A row has its reward."""
        row = self._row(event, record, group)
        if row is not None:
            row.reward = record

    def on_reward_failed(
        self, event: RewardFailed, record: Record, group: GroupLife | None
    ) -> None:
        """A row has no reward, and is not to be trained on."""
        row = self._row(event, record, group)
        if row is not None:
            row.reward, row.unrewarded = record, True

    def on_committed(self, event: Committed, record: Record, group: GroupLife | None) -> None:
        """A group is ready."""
        group = self._opened(event, record, group)
        if group is not None and group.committed is None:
            group.committed = record
            self.ready += group.waiting

    def on_queued(self, _: Queued | Dequeued, record: Record, group: GroupLife | None) -> None:
        """A trajectory queue has a group, or gives it out."""
        if group is not None:
            group.queued = record

    on_dequeued = on_queued

    def on_selected(self, event: Selected, record: Record, group: GroupLife | None) -> None:
        """A step takes a group."""
        group = self._opened(event, record, group)
        if group is not None:
            self._leave(group)
            group.selected = record

    def on_trained(self, event: Trained, record: Record, group: GroupLife | None) -> None:
        """Rows are in an update; with the last of them the group is closed."""
        if event.step != self.step:
            self.step, self.stepped = event.step, record
        group = self._opened(event, record, group)
        if group is None:
            return
        self._leave(group)
        group.trained.append(record)
        group.trained_rows.update(event.rows)
        if len(group.trained_rows) >= self.rows_of(group):
            self._close(group, Fate.TRAINED, record)
            self.totals.trained += 1

    def rows_of(self, group: GroupLife) -> int:
        """Return the number of rows to train on.

        They are those committed, or else the group size, without the rows whose reward failed.
        """
        if group.committed is not None and isinstance(group.committed.event, Committed):
            return len(set(group.committed.event.rows) - group.unrewarded_rows)
        size = (self.run.group_size if self.run else None) or 1
        return size - len(group.unrewarded_rows)

    def on_dropped(self, event: Dropped, record: Record, group: GroupLife | None) -> None:
        """A group is closed."""
        self.awaiting.pop(event.group_id, None)
        group = self._opened(event, record, group)
        if group is not None:
            self._leave(group)
            self._close(group, Fate.DROPPED, record)
            self.totals.dropped[event.cause] += 1

    def on_cleared(self, _: Cleared, record: Record, group: GroupLife | None) -> None:
        """The rows of a group are gone; a group that is not open had ended before."""
        if group is not None:
            group.cleared = record

    def _leave(self, group: GroupLife) -> None:
        """Count a group as taken or closed, once."""
        if group.waiting:
            self.waiting -= 1
            self.ready -= group.committed is not None

    def _close(self, group: GroupLife, fate: Fate, record: Record) -> None:
        del self.groups[group.group_id]
        digest = self.closed.add(group.group_id, fate, record)
        if self.checkpoints:
            self.checkpoints[-1].groups_closed.append(digest)
        if fate is Fate.TRAINED and group.prompt_id and self.run and self.run.prompts_once:
            digest = self.trained_prompts.add(group.prompt_id, fate, record)
            if self.checkpoints:
                self.checkpoints[-1].prompts_closed.append(digest)

    def on_checkpoint_saved(
        self, event: CheckpointSaved, record: Record, _: GroupLife | None
    ) -> None:
        """Keep the state, so that a resume can return to it."""
        mark = CheckpointMark(record, event.step, dict(self.groups), self.totals.copy())
        self.checkpoints = [*self.checkpoints[1 - KEPT_CHECKPOINTS :], mark]

    def checkpoint_of(self, step: int) -> CheckpointMark | None:
        """Return the latest checkpoint of a step."""
        return next((mark for mark in reversed(self.checkpoints) if mark.step == step), None)

    def on_resumed(self, event: Resumed, record: Record, _: GroupLife | None) -> None:
        """Return to the state of the checkpoint."""
        self.resumes += 1
        self.step, self.stepped = event.step, record
        mark = self.checkpoint_of(event.step)
        if mark is None:
            return
        number = self.checkpoints.index(mark)
        for undone in self.checkpoints[number:]:
            for digest in undone.groups_closed:
                self.closed.remove(digest)
            for digest in undone.prompts_closed:
                self.trained_prompts.remove(digest)
        mark.groups_closed, mark.prompts_closed = array("Q"), array("Q")
        del self.checkpoints[number + 1 :]
        restored = set(event.restored)
        self.groups = {name: g for name, g in mark.open_groups.items() if name in restored}
        for group in self.groups.values():
            group.forget_training()
        self.awaiting = {n: g for n, g in mark.open_groups.items() if n not in restored}
        self.totals = mark.totals.copy()
        self.waiting = len(self.groups)
        self.ready = sum(group.committed is not None for group in self.groups.values())

    @property
    def completed(self) -> Record | None:
        """The ``run_finished`` of a run that was completed."""
        event = self.finished.event if self.finished is not None else None
        whole = isinstance(event, RunFinished) and event.reason == "completed"
        return self.finished if whole else None
