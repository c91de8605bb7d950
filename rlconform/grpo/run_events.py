"""``RunEvents``: what the driver of a run writes into the event log; without a writer, nothing.

    trainer ── begin ─▶ per group: dispatched ─▶ committed ─▶ selected ─▶ trained ─▶ cleared
                                       └────────── dropped ─────┘
            ── finish: run_finished, and the end of the file

The methods are named after what has happened. Those about groups are called where it happens: in
the replay buffer and the pumps of an asynchronous run, and by ``StepGroups`` in a synchronous one.
Rollout workers write their own events, and so do policy workers and clients of the plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from rlconform.events import EventWriter
from rlconform.events.schema import (
    CheckpointSaved,
    Cleared,
    Committed,
    DropCause,
    Dropped,
    EventSource,
    GroupCounts,
    Idle,
    IdleCause,
    ProcessLost,
    PromptDispatched,
    Resumed,
    RolloutPaused,
    RolloutResumed,
    RunFinished,
    RunStarted,
    Selected,
    Trained,
)
from rlconform.grpo.events_actor import EventLogPlace
from rlconform.grpo.rollout.worker import RowSummary

#: How a run ends.
RunEnd = Literal["completed", "failed", "cancelled"]


class RunEvents:
    """The events of a run's driver; ``RunEvents()`` writes nothing.

    ::

        events = RunEvents(writer)
        events.begin(declared)
        ...
        events.finish("completed")
    """

    def __init__(
        self, writer: EventWriter | None = None, place: EventLogPlace | None = None
    ) -> None:
        self.place = place  # where the run's actors write theirs
        self.writer = writer if writer is not None else EventWriter(None, run="", role="driver")
        self._open = False

    @property
    def enabled(self) -> bool:
        """Whether anything is written."""
        return self._open

    def stamp(self) -> int:
        """Return the clock to send with a call of an actor."""
        return self.writer.stamp()

    def observe(self, stamp: int) -> None:
        """Take note of the clock that came with an actor's answer."""
        self.writer.observe(stamp)

    def begin(self, declared: RunStarted, left_over: Sequence[EventSource] = ()) -> None:
        """The run begins, or goes on; ``left_over`` are processes of its earlier, broken part."""
        self._open = True
        self.writer.write(declared)
        self.lost(left_over, "its file has no last line, and this part of the run began afterwards")

    def resumed_from(self, step: int, restored: Iterable[str] = ()) -> None:
        """The run goes on from the checkpoint of ``step``, with these groups and their rows."""
        self.writer.write(Resumed(step=step, restored=list(restored)))

    def dispatched(
        self, group_id: str, prompt_id: str, version: int | None, attempt: int = 0
    ) -> None:
        """A prompt is given to generation, while the step that makes ``version`` + 1 is due."""
        step = None if version is None else version + 1
        self.writer.write(
            PromptDispatched(
                group_id=group_id, prompt_id=prompt_id, attempt=attempt, step=step, version=version
            )
        )

    def committed(self, group_id: str, summaries: Sequence[RowSummary]) -> None:
        """The rows of a group are ready, with their rewards; rows without one aren't trained on."""
        versions = [bounds for row in summaries for bounds in row.versions]
        self.writer.write(
            Committed(
                group_id=group_id,
                rows=list(range(len(summaries))),
                start_version=min((lowest for lowest, _ in versions), default=None),
                end_version=max((highest for _, highest in versions), default=None),
                rewards=[row.reward for row in summaries],
            )
        )

    def selected(self, group_ids: Iterable[str], version: int) -> None:
        """The step that makes ``version`` + 1 takes these groups."""
        for group_id in group_ids:
            self.writer.write(Selected(group_id=group_id, step=version + 1, version=version))

    def trained(self, rows_by_group: Mapping[str, Sequence[int]], version: int) -> None:
        """The update that makes ``version`` + 1 has the gradients of these rows of groups."""
        for group_id, rows in rows_by_group.items():
            self.writer.write(
                Trained(group_id=group_id, rows=list(rows), step=version + 1, version=version)
            )

    def dropped(self, group_ids: Iterable[str], cause: str) -> None:
        """These groups will not be trained on; ``cause`` is the value of a ``DropCause``."""
        for group_id in group_ids:
            self.writer.write(Dropped(group_id=group_id, cause=DropCause(cause)))

    def cleared(self, group_ids: Iterable[str]) -> None:
        """The rows of these groups are gone from the plane."""
        for group_id in group_ids:
            self.writer.write(Cleared(group_id=group_id))

    def generation_paused(self) -> None:
        """No generation starts until ``generation_resumed``."""
        self.writer.write(RolloutPaused())

    def generation_resumed(self) -> None:
        """Generations start again."""
        self.writer.write(RolloutResumed())

    def trainer_was_idle(self, cause: str, seconds: float) -> None:
        """The trainer has waited until now."""
        self._was_idle("trainer", cause, seconds)

    def generation_was_idle(self, cause: str, seconds: float) -> None:
        """Nothing was generated until now."""
        self._was_idle("generation", cause, seconds)

    def _was_idle(self, who: Literal["trainer", "generation"], cause: str, seconds: float) -> None:
        self.writer.write(Idle(who=who, seconds=seconds, cause=IdleCause(cause)))

    def checkpoint_saved(
        self,
        step: int,
        buffered: Iterable[str] = (),
        in_flight: Iterable[str] = (),
        fates: Mapping[str, int] | None = None,
    ) -> None:
        """A checkpoint holds these groups with rows, and the prompts of those in flight."""
        self.writer.write(
            CheckpointSaved(
                step=step,
                buffered=list(buffered),
                in_flight=list(in_flight),
                counts=_counts(fates),
            )
        )

    def lost(self, sources: Iterable[EventSource], reason: str) -> None:
        """These processes are dead, or will be killed before they can close their files."""
        for source in sources:
            self.writer.write(ProcessLost(lost=source, reason=reason))

    def finish(self, reason: RunEnd, fates: Mapping[str, int] | None = None) -> None:
        """The run is over; nothing is written afterwards. Idempotent."""
        if self._open:
            self._open = False
            self.writer.write(RunFinished(reason=reason, counts=_counts(fates)))
            self.writer.close()


def _counts(fates: Mapping[str, int] | None) -> GroupCounts | None:
    """Return the framework's own counts of groups by fate."""
    if fates is None:
        return None
    trained = fates.get("trained", 0)
    return GroupCounts(trained=trained, dropped=sum(fates.values()) - trained)
