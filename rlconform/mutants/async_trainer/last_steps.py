"""Ends the run one step too early, or leaves out what follows the last step."""

from __future__ import annotations

from rlconform.grpo.queue.queue_trainer import SyncPeriod
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.trainers.async_controller import AsyncController
from rlconform.grpo.trainers.train_pump import TrainedStep
from rlconform.mutants.async_trainer.defect import trainer_defect


@trainer_defect(
    "accounting", evidence="expected the run to make 8 steps before it was completed; got 7",
    seen="rllm (RL-02)",
)  # fmt: skip
class LastStepNotTrained(AsyncController):
    """Ends before its last step, whose groups are dropped as those that are left over are."""

    async def _step(self) -> tuple[TrainedStep, dict[str, float]]:
        if self.version + 1 < self._size.max_steps:
            return await super()._step()
        return TrainedStep(0), {}


@trainer_defect(
    "versions",
    evidence="to be published before the run was completed; got 7",
    seen="AReaL 0e4b69474 (AR-02)",
)
class LastWeightsNotPublished(AsyncController):
    """Keeps the weights of the last step to itself, as nothing is generated afterwards."""

    async def _step(self) -> tuple[TrainedStep, dict[str, float]]:
        if self.version + 1 < self._size.max_steps:
            return await super()._step()
        step = await self._train.step(self.version)
        self._bump()
        return step, {}


@trainer_defect(
    "versions", evidence="to be published before the run was completed; got 6",
    seen="slime 492215ce3 (SL-10)",
    when=Scenario(options={"transport": "queue", "queue": {"trigger_parameter_sync_step": 3}}),
)  # fmt: skip
class LastStepsBetweenTwoSyncs(SyncPeriod):
    """Publishes weights after every third step alone, also if the run ends in between."""

    def is_due(self, step: int) -> bool:
        return step % self.every == 0
