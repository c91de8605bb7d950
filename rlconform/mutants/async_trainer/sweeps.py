"""Bounds on staleness that are not held: the sweep is skipped, or goes by the wrong version."""

from __future__ import annotations

from typing import Any

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.samplers import ReadyFirstSampler, WindowedSampler
from rlconform.grpo.replay.slots import DropReason, Slot, SlotState
from rlconform.grpo.replay.versions import is_stale
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.trainers.weight_sync import WeightSync
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.async_trainer.timings import half_slow, some_slow
from rlconform.mutants.call import State

_OVERTAKEN = Scenario(
    sampler="ready_first", options={"in_flight_weight_updates": True}, seconds_of=some_slow
)


@trainer_defect("staleness", evidence="versions old", seen="NeMo-RL ready_first", when=_OVERTAKEN)
class SweepSkipped(ReadyFirstSampler):
    """Trusts the gate: a slow group is overtaken by steps, and trained on all the same."""

    def __init__(self, buffer: ReplayBuffer, window: int) -> None:
        super().__init__(buffer, window)
        self.max_staleness = None

    async def evict(self, *, current_train_weight: int) -> int:
        return 0


@trainer_defect("staleness", evidence="versions old", seen="verl#7569", when=_OVERTAKEN)
class JudgedByNewestVersion(ReadyFirstSampler):
    """Drops a group by the age of its newest token, not of its oldest."""

    def __init__(self, buffer: ReplayBuffer, window: int) -> None:
        super().__init__(buffer, window)
        self.max_staleness = None

    async def evict(self, *, current_train_weight: int) -> int:
        old = [
            slot.group_id
            for slot in self._buffer.slots(SlotState.READY)
            if is_stale(slot.record.end_version or 0, current_train_weight, self._window)  # type: ignore[union-attr]
        ]
        if old:
            await self._buffer.remove(old, DropReason.STALE)
        return len(old)


def _in_flight_lag(slot: Slot) -> int:
    end = None if slot.record is None else slot.record.end_version
    return (slot.start_version if end is None else end) - slot.start_version


@trainer_defect(
    "staleness", evidence="in the queue", seen="prime-rl#3009, #2674, #3313",
    when=Scenario(
        sampler="windowed_freshest", options={"max_buffered_rollouts": 24,
        "max_inflight_prompts": 6}, steps=12,
    ),
)  # fmt: skip
class QueueTimeNotCounted(WindowedSampler):
    """Counts the versions that pass while a group is generated, not those while it waits."""

    def __init__(self, buffer: ReplayBuffer, window: int, freshest: bool = False) -> None:
        super().__init__(buffer, window, freshest)
        self.max_staleness = None

    async def evict(self, *, current_train_weight: int) -> int:
        old = [
            slot.group_id
            for slot in self._buffer.slots(SlotState.READY)
            if _in_flight_lag(slot) > self._window
        ]
        if old:
            await self._buffer.remove(old, DropReason.STALE)
        return len(old)


@trainer_defect(
    "staleness", evidence="one version of the weights per sample", seen="slime#2092",
    when=Scenario(seconds_of=some_slow),
)  # fmt: skip
class GenerationsNotDrained(WeightSync):
    """Changes weights under generations in flight, although that is switched off."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "in_flight_updates": True})


@trainer_defect(
    "after_end", evidence="after it was dropped", seen="NeMo-RL windowed, prime-rl#3050",
    when=Scenario(
        sampler="windowed", options={"in_flight_weight_updates": True}, seconds_of=half_slow,
        steps=10,
    ),
)  # fmt: skip
class EvictedInFlight(WindowedSampler):
    """Drops groups that are being generated, whose generation goes on and is committed."""

    _evicted = State(set[str])

    def should_abort_inflight(self, **_: int) -> bool:
        return False

    async def evict(self, *, current_train_weight: int) -> int:
        for slot in self._buffer.slots(SlotState.RESERVED):
            old = is_stale(slot.start_version, current_train_weight, self._window)
            if old and slot.group_id not in self._evicted:
                self._evicted.add(slot.group_id)
                self._buffer.events.dropped([slot.group_id], DropReason.STALE.value)
                self._buffer.on_drop(slot, DropReason.STALE)
        return await super().evict(current_train_weight=current_train_weight)
