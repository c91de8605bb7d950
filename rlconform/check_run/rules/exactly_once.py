"""The rule ``exactly_once``: each row is trained on at most once, over all restarts."""

from __future__ import annotations

from rlconform.check_run.anomaly import RecordKey
from rlconform.check_run.closed_ids import Fate
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import GroupEvent, PromptDispatched, Record, Selected, Trained

_TWICE = "These samples count double in the gradient, and the second time off policy."


class ExactlyOnce(Rule):
    """No row, group or (if the run declares it) prompt is trained on twice, or may be."""

    name = "exactly_once"
    title = "Each sample is trained on at most once, over all restarts"

    def on_trained(self, event: Trained, record: Record, group: GroupLife | None) -> None:
        """The rows must not be in an earlier update, nor twice in this one."""
        again = sorted(group.trained_rows.intersection(event.rows)) if group is not None else []
        if group is not None and again:
            self._report(event.group_id, f"rows {again}", record, *group.trained[-1:])
        if len(set(event.rows)) < len(event.rows):
            self._report(event.group_id, "one of its rows", record)
        run = self.ledger.run
        first_rows = group is not None and not group.trained
        if run is not None and run.prompts_once and first_rows and group and group.prompt_id:
            earlier = self.ledger.trained_prompts.get(group.prompt_id)
            if earlier is not None:
                self.report(
                    f"expected prompt {group.prompt_id} to be trained on once; got it again, as "
                    f"{event.group_id}",
                    "Some prompts are learned from twice, in place of others.",
                    earlier.ended_by, group.dispatched, record, group_ids=(event.group_id,),
                )  # fmt: skip

    def on_stray(self, event: GroupEvent, record: Record) -> None:
        """A group that was trained on must not be taken or trained on again."""
        if isinstance(event, Selected):
            self._check_selected(event, record)
        if isinstance(event, Trained):
            closed = self.ledger.closed.get(event.group_id)
            if closed is not None and closed.fate is Fate.TRAINED:
                if self.ledger.run is None or self.ledger.run.group_size is None:
                    self.lacks("group_size in run_started, to know when a group is trained on")
                else:
                    self._report(event.group_id, f"rows {event.rows}", record, closed.ended_by)

    def _check_selected(self, event: Selected, record: Record) -> None:
        closed = self.ledger.closed.get(event.group_id)
        if closed is not None and closed.fate is Fate.TRAINED:
            self.report(
                f"expected a step to take groups that were not trained on; got {event.group_id} "
                f"selected after it was trained on",
                _TWICE, closed.ended_by, record, group_ids=(event.group_id,),
            )  # fmt: skip

    def on_prompt_dispatched(
        self, event: PromptDispatched, record: Record, group: GroupLife | None
    ) -> None:
        """A name must not be used again for another group."""
        closed = self.ledger.closed.get(event.group_id) if group is None else None
        if closed is not None and closed.fate is Fate.DROPPED and event.attempt == 0:
            self.report(
                f"expected a higher attempt or a new name after {event.group_id} was dropped; got "
                f"it dispatched again as attempt 0",
                "Rows and answers of the dropped attempt may be taken for those of the new one.",
                closed.ended_by, record, group_ids=(event.group_id,),
            )  # fmt: skip
        if closed is not None and closed.fate is Fate.TRAINED:
            self.report(
                f"expected a new name for a new group; got {event.group_id} dispatched again after "
                f"it was trained on",
                "Two groups share their keys: rows of an epoch overwrite or repeat earlier ones.",
                closed.ended_by, record, group_ids=(event.group_id,),
            )  # fmt: skip

    def _report(
        self, group_id: str, which: str, record: Record, *earlier: Record | RecordKey | None
    ) -> None:
        self.report(
            f"expected each row of {group_id} in one update; got {which} in a second one",
            _TWICE, *earlier, record, group_ids=(group_id,),
        )  # fmt: skip
