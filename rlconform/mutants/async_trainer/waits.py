"""Waits for what never comes, or for what is there already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.samplers import (
    ReadyFirstSampler,
    WeightFifoSampler,
    admits,
)
from rlconform.grpo.replay.slots import DropReason, Failure, SlotState
from rlconform.grpo.rollout.pump import RolloutPump
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.async_trainer.timings import quick


@trainer_defect(
    "liveness", evidence="that nobody takes", seen="NeMo-RL#3730",
    when=Scenario(sampler="ready_first"),
)  # fmt: skip
class ReadyGroupsNobodyTakes(ReadyFirstSampler):
    """Waits for more ready groups than there can be."""

    def _choose(self, version: int, most: int) -> list[str]:
        ready = super()._choose(version, most)
        return ready if version < 2 or len(ready) > most else []


@trainer_defect(
    "liveness", evidence="that nobody takes", seen="NeMo-RL weight_fifo",
    when=Scenario(sampler="weight_fifo", failing={"p1": Failure.INFRA, "p6": Failure.INFRA}),
)  # fmt: skip
class WaitsForOneWeight(WeightFifoSampler):
    """Trains on groups of one version alone, so a step that a retry has divided never begins."""

    def _choose(self, version: int, most: int) -> list[str]:
        (oldest, count), *_ = self._buffer.ready_by_start() or [(0, 0)]
        return self._buffer.ready_of_start(oldest, most) if count >= most else []


@trainer_defect(
    "liveness", evidence="nothing is generated", seen="AReaL#1396",
    when=Scenario(sampler="ready_first"),
)  # fmt: skip
class GateScaledTwice(ReadyFirstSampler):
    """Scales the number of dispatched prompts twice, so the gate never opens again."""

    async def admit(self, *, trainer_version_fn: Callable[[], int]) -> int | None:
        await self._buffer.changed.until(
            lambda: admits(2 * self._dispatch_index, trainer_version_fn(), self._window)
        )
        self._dispatch_index += 1
        return None


@trainer_defect(
    "liveness", evidence="expected weight_sync to be why", seen="verl#7990, verl#7846, trl#6797"
)
class NeverResumedAfterSync(RolloutPump):
    """Doesn't go on after the third weight sync."""

    def resume(self) -> None:
        if self._version() < 3:
            super().resume()


@trainer_defect(
    "liveness", evidence="expected buffer_full to be why", seen="SkyRL#1733, SkyRL#1607",
    when=Scenario(
        sampler="windowed", seconds_of=quick, train_s=4.0,
        failing={f"p{n}": Failure.INFRA for n in range(3)},
    ),
)  # fmt: skip
class SlotsLeaked(ReplayBuffer):
    """Doesn't give back the slots of failed groups."""

    async def remove(
        self, group_ids: Sequence[str], reason: DropReason, remove_in_dp: bool = True
    ) -> None:
        await super().remove(group_ids, reason, remove_in_dp)
        if reason is DropReason.INFRA_FAILURE:
            self.capacity -= len(group_ids)


@trainer_defect(
    "liveness", evidence="nothing is generated", seen="SkyRL#1733, SkyRL#1607",
    when=Scenario(
        sampler="ready_first", failing={f"p{n}": Failure.INFRA for n in range(1, 16, 2)},
        options={"rollout_failure": {"generation_timeout_s": 100}},
    ),
)  # fmt: skip
class PermitsLeaked(RolloutPump):
    """Counts failed attempts as in flight for ever, so that fewer and fewer are made."""

    def _ended(self, group_id: str, task: asyncio.Task[None]) -> None:
        failed = group_id not in {slot.group_id for slot in self._buffer.slots(*SlotState)}
        super()._ended(group_id, task)
        if failed:
            self._tasks[group_id] = task
