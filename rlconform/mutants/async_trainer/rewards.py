"""Rewards of other rows, at other times, or more than once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from itertools import cycle, islice

from msgspec.structs import replace as changed

from rlconform.contract import KVBatchMeta
from rlconform.events.schema import RewardComputed, RunEvent
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.slots import GroupRecord
from rlconform.grpo.rollout.rollout_events import RolloutLegs
from rlconform.mutants.async_trainer.defect import trainer_defect


@trainer_defect("reward", evidence="as it was computed", seen="NeMo-RL#3923")
class RewardOfANeighbour(ReplayBuffer):
    """Pairs rewards with rows by position after one row was moved, so each has its neighbour's."""

    def commit(self, group_id: str, record: GroupRecord) -> KVBatchMeta:
        rotated = (*record.summaries[1:], *record.summaries[:1])
        return super().commit(group_id, replace(record, summaries=rotated))


@trainer_defect("reward", evidence="to be for its output", seen="NeMo-RL#3923, pytorch/rl#4440")
class RewardOfAnotherOutput(RolloutLegs):
    """Scores the output of the next row of the group."""

    def _reward_events(self) -> Iterator[RunEvent]:
        events = list(super()._reward_events())
        outputs = [one.output for one in events if isinstance(one, RewardComputed)]
        others = islice(cycle(outputs), 1, None)
        for event in events:
            scored = isinstance(event, RewardComputed)
            yield changed(event, output=next(others)) if scored else event


@trainer_defect("reward", evidence="before the group is committed", seen="slime#2176")
class RewardAfterTheCommit(RolloutLegs):
    """Hands a group over before its rewards are computed."""

    def rewarded(self) -> None:
        late = list(self._reward_events())
        asyncio.get_running_loop().call_later(0.1, self._write, iter(late))


@trainer_defect("reward", evidence="expected one reward of row", seen="rllm")
class RewardComputedTwice(RolloutLegs):
    """Scores each row at two places, and adds up what they say."""

    def _reward_events(self) -> Iterator[RunEvent]:
        for event in super()._reward_events():
            yield event
            if isinstance(event, RewardComputed):
                yield event
