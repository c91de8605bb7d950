"""The rule ``reward``: each row has one reward, of its own output, before the commit.

A row whose reward failed says so, and is committed without one; no default takes its place.
"""

from __future__ import annotations

from rlconform.check_run.anomaly import Basis
from rlconform.check_run.lives import GroupLife, RowLife, records_of
from rlconform.check_run.rule import Rule
from rlconform.events.schema import (
    Committed,
    Feature,
    Record,
    RewardComputed,
    RewardFailed,
    RolloutFinished,
    RunStarted,
)

_WRONG = "The sample is reinforced, or suppressed, for what another one did."


class RewardOfItsSample(Rule):
    """One reward, or one failure, per row and attempt, of this row's output, before the commit."""

    name = "reward"
    title = "Each row has one reward, its own, before its group is committed"
    needs = (RunStarted, Committed, RewardComputed)

    def not_applicable(self) -> str | None:
        """Without rewards in the log there is nothing to judge."""
        run, seen = self.ledger.run, self.ledger.seen
        if (
            seen[RewardComputed]
            or seen[RewardFailed]
            or run is None
            or Feature.REWARD in run.features
        ):
            return None
        return "the run declares no rewards (feature reward)"

    def on_reward_computed(
        self, event: RewardComputed | RewardFailed, record: Record, group: GroupLife | None
    ) -> None:
        """A reward follows the end of its rollout, once."""
        if group is None:
            return  # a late answer, or a stray that the rule accounting reports
        row = group.rows.get(event.row)
        if row is None or event.attempt > row.attempt:
            self._report_unfinished(event, record, group, None)
            return
        if event.attempt < row.attempt:
            return  # the late answer to an earlier attempt
        if row.reward is not None:
            self._report_twice(event, record, row)
        elif not row.finished:
            self._report_unfinished(event, record, group, row)
        elif group.committed is not None:
            self.report(
                f"expected the reward of row {event.row} of {event.group_id} before the group is "
                f"committed; got it after",
                "The group may be trained on without this reward, or with a default.",
                row.ended, group.committed, record, group_ids=(event.group_id,),
            )  # fmt: skip
        if event.output is not None and row.ended is not None:
            self._check_output(event, record, row.ended)

    on_reward_failed = on_reward_computed

    def _report_twice(
        self, event: RewardComputed | RewardFailed, record: Record, row: RowLife
    ) -> None:
        self.report(
            f"expected one reward of row {event.row} of {event.group_id}; got a second one",
            "Rewards are added up or overwritten, or another row goes without.",
            row.ended, row.reward, record, group_ids=(event.group_id,),
        )  # fmt: skip

    def _report_unfinished(
        self,
        event: RewardComputed | RewardFailed,
        record: Record,
        group: GroupLife,
        row: RowLife | None,
    ) -> None:
        self.report(
            f"expected row {event.row} of {event.group_id}, attempt {event.attempt}, to be "
            f"finished before it has a reward; got the reward of an unfinished one",
            _WRONG, group.first, *records_of(row), record,
            basis=Basis.ABSENCE, group_ids=(event.group_id,),
        )  # fmt: skip

    def _check_output(
        self, event: RewardComputed | RewardFailed, record: Record, ended: Record
    ) -> None:
        finished = ended.event
        if not isinstance(finished, RolloutFinished) or finished.output in {None, event.output}:
            return
        self.report(
            f"expected the reward of row {event.row} of {event.group_id} to be for its output "
            f"{finished.output}; got that of {event.output}",
            _WRONG, ended, record, group_ids=(event.group_id,),
        )  # fmt: skip

    def on_committed(self, event: Committed, record: Record, group: GroupLife | None) -> None:
        """All rows have their rewards, and the group holds these."""
        if group is None or not group.rows:
            return
        rewards = event.rewards
        if rewards is not None and len(rewards) != len(event.rows):
            self.report(
                f"expected {len(event.rows)} rewards of {event.group_id}; got {len(rewards)}",
                _WRONG, group.dispatched, record, group_ids=(event.group_id,),
            )  # fmt: skip
            return
        for place, number in enumerate(event.rows):
            row = group.rows.get(number)
            reward = row.reward if row is not None else None
            if reward is None:
                self._report_without(event, record, number, row)
                return
            if rewards is not None and not _agree(reward, rewards[place]):
                self.report(
                    f"expected {_said(reward)} of row {number} of {event.group_id}, as it was "
                    f"computed; got {rewards[place]} committed",
                    _WRONG, reward, record, group_ids=(event.group_id,),
                )  # fmt: skip
                return

    def _report_without(
        self, event: Committed, record: Record, number: int, row: RowLife | None
    ) -> None:
        run = self.ledger.run
        seen = self.ledger.seen
        if not (seen[RewardComputed] or seen[RewardFailed]) and (
            run is None or Feature.REWARD not in run.features
        ):
            return  # the rule does not apply
        self.report(
            f"expected a reward of row {number} of {event.group_id} before the group is committed; "
            f"got none",
            "The row is trained on with a default, which biases the baseline of its group.",
            *records_of(row), record,
            basis=Basis.ABSENCE, group_ids=(event.group_id,),
        )  # fmt: skip


def _agree(reward: Record, committed: float | None) -> bool:
    """Whether the committed reward is the one of the record; a reward that isn't known may be any.

    For a failed one none may be committed.
    """
    if isinstance(reward.event, RewardFailed):
        return committed is None
    computed = reward.event.reward if isinstance(reward.event, RewardComputed) else None
    return computed is None or committed == computed


def _said(reward: Record) -> str:
    if isinstance(reward.event, RewardComputed):
        return f"reward {reward.event.reward}"
    return "no reward"
