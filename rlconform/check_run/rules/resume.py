"""The rule ``resume``: a restart loses no prompt and repeats none."""

from __future__ import annotations

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.checkpoint_mark import CheckpointMark
from rlconform.check_run.closed_ids import Fate
from rlconform.check_run.ledger import KEPT_CHECKPOINTS, Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    CheckpointSaved,
    PromptDispatched,
    Record,
    Resumed,
    RunFinished,
    RunStarted,
    Unlogged,
)

#: Dispatches that are remembered from one checkpoint to the next.
MOST_UNDONE = 20_000
_SKIPPED = "These prompts are never learned from; those that take long are hit most often."


class ResumeComplete(Rule):
    """What a checkpoint holds comes back, and what it does not hold is dispatched again."""

    name = "resume"
    title = "A restart loses no prompt and repeats none"
    needs = (RunStarted, PromptDispatched)
    rests_on = (Unlogged.CHECKPOINT_SAVED,)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._resumed: Record | None = None
        self._saved: Record | None = None
        self._undone: dict[str, Record] = {}  # by prompt id, dispatches that the resume undoes
        self._since: list[list[Record]] = []  # dispatches from each checkpoint to the next
        self._new_after_resume: Record | None = None

    def not_applicable(self) -> str | None:
        """A run without checkpoints and resumes has nothing to judge."""
        seen = self.ledger.seen
        if seen[Resumed] or seen[CheckpointSaved] or self.left_out():
            return None
        return "the run has no checkpoint"

    def on_run_started(self, _: RunStarted, __: Record, ___: GroupLife | None) -> None:
        """The begin of a run is a checkpoint of step 0."""
        if not self.ledger.checkpoints:
            self._since = [[]]

    def on_prompt_dispatched(
        self, event: PromptDispatched, record: Record, _: GroupLife | None
    ) -> None:
        """Note what a later resume may undo, and what it brings back."""
        if self._since and len(self._since[-1]) <= MOST_UNDONE:
            self._since[-1].append(record)
        if self._resumed is None:
            return
        saved = any(g.prompt_id == event.prompt_id for g in self.ledger.awaiting.values())
        undone = self._undone.pop(event.prompt_id, None)
        if not saved and undone is None and event.attempt == 0 and not self._new_after_resume:
            self._new_after_resume = record

    def on_checkpoint_saved(
        self, event: CheckpointSaved, record: Record, _: GroupLife | None
    ) -> None:
        """The checkpoint names every group that is open in its process."""
        self._since = [*self._since[1 - KEPT_CHECKPOINTS :], []]
        if event.buffered is None or event.in_flight is None:
            return
        held = {*event.buffered, *event.in_flight}
        for group in self.ledger.groups.values():
            dispatched = group.dispatched
            own = dispatched is not None and dispatched.source == record.source
            if own and group.group_id not in held:
                self.report(
                    f"expected the checkpoint of step {event.step} to hold every open group; got "
                    f"none of {group.group_id}",
                    _SKIPPED, group.dispatched, group.last, record,
                    basis=Basis.ABSENCE, group_ids=(group.group_id,),
                )  # fmt: skip

    def on_resumed(self, event: Resumed, record: Record, _: GroupLife | None) -> None:
        """What comes back was in the checkpoint."""
        mark = self.ledger.checkpoint_of(event.step)
        if mark is None:
            self.lacks("checkpoint_saved of the step that was resumed from", f"step {event.step}")
            return
        self._resumed, self._saved = record, mark.record
        number = self.ledger.checkpoints.index(mark)
        for dispatches in self._since[number:]:
            if len(dispatches) > MOST_UNDONE:
                self.lacks(f"a checkpoint after {MOST_UNDONE} prompts at the latest")
            for dispatched in dispatches:
                if isinstance(dispatched.event, PromptDispatched):
                    self._undone.setdefault(dispatched.event.prompt_id, dispatched)
        self._since = [*self._since[:number], []]
        self._new_after_resume = None
        for name in event.restored:
            if name not in mark.open_groups:
                self._report_foreign(name, record, mark)
        saved = mark.record.event
        held = saved.buffered if isinstance(saved, CheckpointSaved) else None
        for name in sorted(set(held or ()) - set(event.restored)):
            if name in mark.open_groups:
                continue  # it must be dispatched again: see at_end
            self.lacks("events of a group that the checkpoint holds", name)

    def _report_foreign(self, name: str, record: Record, mark: CheckpointMark) -> None:
        closed = self.ledger.closed.get(name)
        if closed is not None and closed.fate is Fate.TRAINED:
            self.report(
                f"expected only groups that were not trained on to come back; got {name}, which "
                f"was trained on before the checkpoint",
                "Its samples count twice, the second time staler.",
                closed.ended_by, mark.record, record, group_ids=(name,),
            )  # fmt: skip
        else:
            self.report(
                f"expected only groups that the checkpoint of step {mark.step} holds; got {name}",
                "Rows of another run, or of a rejected group, are trained on.",
                mark.record, record, basis=Basis.ABSENCE, group_ids=(name,),
            )  # fmt: skip

    def at_end(self) -> None:
        """What was open at the checkpoint, or dispatched after it, has come again."""
        if self._resumed is None:
            return
        finished = self.ledger.finished
        if finished is None or not isinstance(finished.event, RunFinished):
            self.lacks("run_finished")
            return
        if self._new_after_resume is None:
            return  # a run may end before all of them have come again, but new ones come later
        for group in self.ledger.awaiting.values():
            self.report(
                f"expected {group.group_id}, which was open at the checkpoint, to come back or to "
                f"be dispatched again before new prompts; got neither",
                _SKIPPED, group.dispatched, group.committed, self._saved, self._resumed,
                self._new_after_resume, finished,
                basis=Basis.ABSENCE, group_ids=(group.group_id,),
            )  # fmt: skip
        for prompt_id, dispatched in self._undone.items():
            self.report(
                f"expected prompt {prompt_id}, which the resume undoes, to be dispatched again "
                f"before new ones; got it skipped",
                _SKIPPED, self._saved, dispatched, self._resumed, self._new_after_resume, finished,
                basis=Basis.ABSENCE,
            )  # fmt: skip
