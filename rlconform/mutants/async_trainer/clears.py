"""Rows that are cleared too early, and work after the end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.slots import Slot
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.trainers.async_controller import AsyncController
from rlconform.grpo.trainers.train_pump import TrainedStep, TrainPump
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.call import State


@trainer_defect(
    "after_end", evidence="after they were cleared", seen="TransferQueue#149, NeMo-RL",
)  # fmt: skip
class ClearedBeforeTraining(TrainPump):
    """Clears the rows of a chunk as soon as they are selected, before they are read."""

    async def _take_chunk(self, step: TrainedStep, version: int) -> None:
        if step.slots or version != 2:
            await super()._take_chunk(step, version)
            return
        ready = [slot.group_id for slot in self._buffer.slots() if slot.record is not None]
        ready = self._buffer.ready_of_step(version) or ready
        for group_id in ready:
            await self._buffer._clear_rows(self._buffer.row_ids(group_id))
        self._events.cleared(ready)
        await super()._take_chunk(step, version)


@trainer_defect(
    "after_end", evidence="got trained after they were cleared", seen="TransferQueue#141, miles",
)  # fmt: skip
class TrainedAfterClear(ReplayBuffer):
    """Clears the rows of a group while the step that has taken it trains."""

    _clears = State(list[asyncio.Task[None]])

    def training_slots(self, group_ids: Sequence[str]) -> list[Slot]:
        async def clear() -> None:
            await asyncio.sleep(0.5)
            await self._clear_rows(self.row_ids(group_ids[0]))
            self.events.cleared(group_ids[:1])

        self._clears.append(asyncio.ensure_future(clear()))
        return super().training_slots(group_ids)


@trainer_defect(
    "after_end", evidence="no work after the run was finished", seen="slime#2176",
    when=Scenario(sampler="windowed"), may="accounting group_integrity versions",
)  # fmt: skip
class FinishedBeforeItsWork(AsyncController):
    """Ends the run while its workers go on to generate and to score."""

    def _bump(self) -> None:
        super()._bump()
        if self.version == 5:
            self.buffer.events.finish("completed", self.buffer.fates)
