"""The rule ``after_end``: nothing happens to a group after it was dropped or cleared."""

from __future__ import annotations

from rlconform.check_run.closed_ids import Fate
from rlconform.check_run.ledger import Ledger
from rlconform.check_run.lives import GroupLife
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    Committed,
    DropCause,
    Dropped,
    GroupEvent,
    PromptDispatched,
    Record,
    Resumed,
    RewardComputed,
    RewardFailed,
    RolloutStarted,
    Selected,
    Trained,
    Unlogged,
)

#: What must not happen to a dropped group; late ends and rewards are only wasted work.
_USES = (Committed, RolloutStarted, Selected, Trained)


class NothingAfterEnd(Rule):
    """A dropped group is not used, a cleared one not read, and after the run there is no work."""

    name = "after_end"
    title = "Nothing is done with a group that was dropped or cleared"
    rests_on = (Unlogged.DROPPED, Unlogged.CLEARED)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._shut_down: set[str] = set()  # dropped because the run, or this part of it, ends

    def on_dropped(self, event: Dropped, _: Record, __: GroupLife | None) -> None:
        """Note drops whose generation may be about to start: nobody waits for it any more."""
        if event.cause is DropCause.SHUTDOWN:
            self._shut_down.add(event.group_id)

    def on_resumed(self, _: Resumed, __: Record, ___: GroupLife | None) -> None:
        """Calls of the part before are over."""
        self._shut_down.clear()

    def on_stray(self, event: GroupEvent, record: Record) -> None:
        """A dropped group is not used any more, and none is after the run."""
        if isinstance(event, RolloutStarted | RewardComputed | RewardFailed):
            self._check_running(event, record)
        if not isinstance(event, _USES):
            return
        if isinstance(event, RolloutStarted) and event.group_id in self._shut_down:
            return  # its call was under way when the run ended
        closed = self.ledger.closed.get(event.group_id)
        if closed is not None and closed.fate is Fate.DROPPED:
            tag = event.__struct_config__.tag
            self.report(
                f"expected nothing of {event.group_id} after it was dropped; got {tag}",
                "What was judged unfit is trained on, or what is already counted as lost takes up "
                "room and time.",
                closed.ended_by, record, group_ids=(event.group_id,),
            )  # fmt: skip

    def on_selected(self, event: Selected, record: Record, group: GroupLife | None) -> None:
        """A cleared group has no rows to select."""
        self._check_cleared(event, record, group)
        self._check_running(event, record)

    def on_trained(self, event: Trained, record: Record, group: GroupLife | None) -> None:
        """A cleared group has no rows to train on."""
        self._check_cleared(event, record, group)
        self._check_running(event, record)

    def _check_cleared(
        self, event: Selected | Trained, record: Record, group: GroupLife | None
    ) -> None:
        if group is not None and group.cleared is not None:
            self.report(
                f"expected the rows of {event.group_id} to be there when a step uses them; got "
                f"{event.__struct_config__.tag} after they were cleared",
                "The step reads rows of another group in their place, or none.",
                group.committed, group.cleared, record, group_ids=(event.group_id,),
            )  # fmt: skip

    def on_prompt_dispatched(
        self, event: PromptDispatched, record: Record, _: GroupLife | None
    ) -> None:
        """Nothing is dispatched after the run."""
        self._check_running(event, record)

    def _check_running(self, event: GroupEvent, record: Record) -> None:
        if self.ledger.finished is not None:
            self.report(
                f"expected no work after the run was finished; got "
                f"{event.__struct_config__.tag} of {event.group_id}",
                "Processes go on and hold devices; what they do is lost.",
                self.ledger.finished, record, group_ids=(event.group_id,),
            )  # fmt: skip
