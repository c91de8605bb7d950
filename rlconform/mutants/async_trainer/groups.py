"""Groups that are trained on twice, in part, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlconform.contract import KVBatchMeta
from rlconform.events.schema import RunEvent, Trained
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.slots import GroupRecord, SlotState
from rlconform.grpo.rollout.prompt_queue import PromptQueue
from rlconform.grpo.rollout.pump import RolloutPump
from rlconform.grpo.rollout.rollout_events import RolloutLegs, Unfinished
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.tasks import Problem
from rlconform.grpo.trainers.train_pump import TrainedStep, TrainPump
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.async_trainer.timings import number_of, quick

_ANY_ORDER = Scenario(sampler="ready_first")


@trainer_defect(
    "group_integrity", evidence="1 rows where groups have 2", seen="verl#6437, verl#6641"
)
class SiblingMissing(ReplayBuffer):
    """Makes a group ready without its last row."""

    def commit(self, group_id: str, record: GroupRecord) -> KVBatchMeta:
        if number_of(group_id) % 5 == 3:
            first = range(self.group_size - 1)
            record = replace(
                record, meta=record.meta.subset(first), summaries=record.summaries[:-1]
            )
        return super().commit(group_id, record)

    def row_ids(self, group_id: str) -> list[str]:
        whole = super().row_ids(group_id)
        return whole[:-1] if number_of(group_id) % 5 == 3 else whole


@trainer_defect(
    "group_integrity", evidence="is still generated", seen="verl-omni#343, verl-omni#339",
    may="reward",
)  # fmt: skip
class FinalBeforeItsSiblings(RolloutLegs):
    """Ends a group with its first row."""

    def _events(self, unfinished: Unfinished) -> Iterator[RunEvent]:
        self._before = self._before[:1]
        return super()._events(unfinished)


@trainer_defect(
    "group_integrity", evidence="in one step; got rows [0] only", seen="prime-rl#3313",
    may="accounting",
)  # fmt: skip
class PartOfAGroupTrained(RunEvents):
    """Leaves the stale half of a group out of the update."""

    def trained(self, group_ids: Iterable[str], version: int) -> None:
        for group_id in group_ids:
            rows = [0] if number_of(group_id) % 5 == 3 else [0, 1]
            self.writer.write(
                Trained(group_id=group_id, rows=rows, step=version + 1, version=version)
            )


@trainer_defect(
    "group_integrity", evidence="no rows trained on", seen="verl#6975", when=_ANY_ORDER,
    may="versions",
)  # fmt: skip
class StepWithoutGroups(TrainPump):
    """Makes a step although all its groups were dropped."""

    def _make_up_for_lost(self, step: TrainedStep, version: int) -> None:
        if version == 3:
            step.wanted = 0
        else:
            super()._make_up_for_lost(step, version)


@trainer_defect("exactly_once", evidence="to be trained on once", seen="slime", when=_ANY_ORDER)
class RetriedThoughCommitted(RolloutPump):
    """Generates a prompt again after its answer has come in late, and keeps both groups."""

    async def _commit(self, group_id: str, record: GroupRecord) -> None:
        prompt = self._buffer.slots(SlotState.RESERVED)
        late = next(slot.prompt for slot in prompt if slot.group_id == group_id)
        await super()._commit(group_id, record)
        if late.sequence == 1 and late.attempt == 0:
            self.queue.dispatched += 1
            self.queue._again.append(replace(late, attempt=1))


@trainer_defect(
    "exactly_once", evidence="selected after it was trained on", seen="rllm",
    when=Scenario(sampler="ready_first", seconds_of=quick), may="accounting",
)  # fmt: skip
class ReadyAgainAfterTraining(ReplayBuffer):
    """Leaves a group in the queue of ready ones when a step has trained on it."""

    def release_trained(self) -> int:
        kept = [slot for slot in self.slots(SlotState.TRAINED) if slot.prompt.sequence == 1]
        records = [slot.record for slot in kept]
        released = super().release_trained()
        for slot, record in zip(kept, records, strict=True):
            if record is not None:
                slot.state = SlotState.RESERVED
                self._insert(slot)
                self._make_ready(slot, record)
                self._ready_order = {slot.group_id: None, **self._ready_order}
        return released


@trainer_defect(
    "exactly_once", evidence="expected a new name for a new group", seen="AReaL, verl",
    when=Scenario(seconds_of=quick),
)  # fmt: skip
class EpochRepeatsKey(PromptQueue):
    """Names groups by the number of the problem in its epoch, so epochs share their names."""

    def dispatch(self, count: int, step: int | None) -> None:
        take = self._take_problems

        def of_epoch(wanted: int) -> list[Problem]:
            return [replace(one, uid=f"p{number_of(one.uid) % 16}") for one in take(wanted)]

        self._take_problems = of_epoch
        try:
            super().dispatch(count, step)
        finally:
            self._take_problems = take


@trainer_defect("accounting", evidence="of a group that never was", seen="verl, trl")
class ValidationRowsTrained(TrainPump):
    """Puts the rows of a validation into the update."""

    async def step(self, version: int) -> TrainedStep:
        step = await super().step(version)
        if version == 3:
            self._events.trained({"val-0": range(2)}, version)
        return step


@trainer_defect("accounting", evidence="expected trained = ", seen="NeMo-RL#3880")
class ValidationCountedAsTraining(TrainPump):
    """Counts the groups of a validation among those that were trained on."""

    async def step(self, version: int) -> TrainedStep:
        step = await super().step(version)
        self._buffer.fates["trained"] += version == 3
        return step
