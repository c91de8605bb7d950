"""Groups that the producer of a trajectory queue forgets, though they hold their slots."""

from __future__ import annotations

from typing import Any

from rlconform.grpo.queue.rollouter import Rollouter
from rlconform.grpo.replay.slots import GroupRecord
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.async_trainer.timings import quick


def _queue(**options: Any) -> dict[str, Any]:
    failures = {"max_infra_attempts_per_prompt": 20}  # each refused put is one
    return {"transport": "queue", "queue": options, "rollout_failure": failures}


@trainer_defect(
    "liveness", evidence="until the run ended", seen="rllm, verl#7037",
    when=Scenario(
        options=_queue(capacity=4, on_full="refuse", staleness_threshold=2), seconds_of=quick,
        train_s=5.0,
    ),
)  # fmt: skip
class RefusedGroupKept(Rollouter):
    """Takes no note of a refused put: the group's slot stays, and nobody trains on it."""

    async def _put(self, group_id: str, record: GroupRecord) -> None:
        removed, self._buffer.remove_group = self._buffer.remove_group, _nothing  # type: ignore[method-assign, assignment]
        try:
            await super()._put(group_id, record)
        finally:
            self._buffer.remove_group = removed  # type: ignore[method-assign]


async def _nothing(*_: object) -> None:
    """Remove no group."""


@trainer_defect(
    "liveness", evidence="until the run ended", seen="NeMo-RL#3730",
    when=Scenario(
        options=_queue(staleness_threshold=2.0, max_staleness_versions=1), seconds_of=quick,
    ),
)  # fmt: skip
class SweptGroupKept(Rollouter):
    """Takes no note of groups that the queue drops: their slots stay, and nobody trains on them."""

    async def _drop_swept(self) -> None:
        seen = 0
        while drops := await self._trajectories.drops(seen):
            seen = drops[-1].number


@trainer_defect(
    "liveness", evidence="until the run ended", seen="NeMo-RL, verl#7935",
    when=Scenario(options=_queue(), restarts=(3,)),
)  # fmt: skip
class RestoredGroupsNotPut(Rollouter):
    """Puts no group of a checkpoint into the new queue, so nobody trains on them."""

    async def _put_restored(self) -> None:
        """Put nothing."""
