"""Wrong versions in stamps: of samples, of engines, and of the trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rlconform.contract import KVBatchMeta
from rlconform.events.schema import Committed, Selected, WeightsApplied
from rlconform.grpo.algorithm.advantages import group_of
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.checkpoint import SavedRun
from rlconform.grpo.replay.slots import GroupRecord, SlotState
from rlconform.grpo.rollout.rollout_events import RolloutEvents, RolloutLegs
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.simulation.scenario import Scenario
from rlconform.grpo.trainers.async_controller import AsyncController
from rlconform.grpo.trainers.train_pump import TrainedStep
from rlconform.grpo.trainers.weight_sync import WeightSync
from rlconform.mutants.async_trainer.defect import trainer_defect
from rlconform.mutants.async_trainer.timings import longer_than_sync, some_slow
from rlconform.mutants.call import State

_IN_FLIGHT = {"in_flight_weight_updates": True}


@trainer_defect(
    "staleness", evidence="versions old", seen="verl#6975",
    when=Scenario(sampler="ready_first", options=_IN_FLIGHT, seconds_of=some_slow),
)  # fmt: skip
class StampedAtCompletion(ReplayBuffer):
    """Stamps a group with the version at the end of its generation, and judges its age by that."""

    def commit(self, group_id: str, record: GroupRecord) -> KVBatchMeta:
        slot = self._slot(group_id, SlotState.RESERVED)
        self._reserved.discard(slot.start_version, group_id)
        slot.start_version = record.end_version or 0
        return super().commit(group_id, record)


@trainer_defect(
    "versions", evidence="which rollout-0 has; got", seen="verl#6975",
    when=Scenario(options={"partial_rollouts": True}, seconds_of=some_slow, workers=1),
)  # fmt: skip
class StampedAtSubmit(RolloutEvents):
    """Stamps a row that goes on after an abort with the version of its first start."""

    _first = State(dict[str, int])

    def started(self, rows: Sequence[RolloutRow], version: Callable[[], int]) -> RolloutLegs:
        first = self._first.setdefault(group_of(rows[0].sample_id), version())
        return super().started(rows, lambda: first)


@trainer_defect(
    "versions", evidence="expected start_version", seen="verl#7569",
    when=Scenario(sampler="windowed", options=_IN_FLIGHT),
)  # fmt: skip
class CommittedWithNewestVersion(RunEvents):
    """Stamps a committed group with the version of its newest token alone."""

    def committed(self, group_id: str, summaries: Sequence[RowSummary]) -> None:
        newest = max(highest for row in summaries for _, highest in row.versions)
        self.writer.write(
            Committed(
                group_id=group_id, rows=list(range(len(summaries))), start_version=newest,
                end_version=newest, rewards=[row.reward for row in summaries],
            )
        )  # fmt: skip


@trainer_defect("versions", evidence="stamped with", seen="prime-rl#3385", may="staleness")
class StampedAheadOfTheEngine(RolloutEvents):
    """Stamps a row with the version that the engine is to get next."""

    def started(self, rows: Sequence[RolloutRow], version: Callable[[], int]) -> RolloutLegs:
        return super().started(rows, lambda: version() + 1)


@trainer_defect(
    "versions", evidence="to be dispatched at version", seen="prime-rl#3385, ray#63699",
    when=Scenario(
        sampler="ready_first", options=_IN_FLIGHT, sync_s=2.0, seconds_of=longer_than_sync
    ),
    may="staleness",
)  # fmt: skip
class BumpedBeforeApplied(WeightSync):
    """Counts a version before it is published, and dispatches prompts meanwhile."""

    async def publish(self, version: int, bump: Callable[[], None]) -> int:
        bump()
        self._buffer.release_trained()
        await self._transfer(version)
        return 0


@trainer_defect(
    "versions", evidence="expected a version above", seen="verl#7933",
    when=Scenario(sampler="ready_first"), may="accounting",
)  # fmt: skip
class BumpForgotten(AsyncController):
    """Does not count the third update, so two updates have one version."""

    _updates = State(list[int])

    def _bump(self) -> None:
        self._updates.append(1)
        if len(self._updates) != 3:
            super()._bump()


@trainer_defect("versions", evidence="same weights of version", seen="torchtitan#3795")
class TornWeightsKept(RolloutEvents):
    """The second worker copies weights while the trainer writes them, after the check."""

    def applied(self, version: int, load: Callable[[], str]) -> str:
        with self._lock:
            digest = load()
            held = digest if self._engine == "rollout-0" else f"half of {digest}"
            self._writer.write(WeightsApplied(version=version, engine=self._engine, digest=held))
        return digest


@trainer_defect("versions", evidence="same weights of version", seen="NeMo-RL#3747")
class OneWorkerNotUpdated(RolloutEvents):
    """The second worker keeps its weights, and says that it has the new ones."""

    _held = State(list[str])

    def applied(self, version: int, load: Callable[[], str]) -> str:
        if self._engine == "rollout-0" or not self._held:
            self._held.append(super().applied(version, load))
        else:
            digest = self._held[0]
            self._writer.write(WeightsApplied(version=version, engine=self._engine, digest=digest))
        return self._held[-1]


@trainer_defect(
    "versions", evidence="expected step 3 or 4; got step 5", seen="verl#7933, verl#7935",
    when=Scenario(sampler="ready_first", restarts=(3,)), may="staleness accounting",
)  # fmt: skip
class ResumeCountsStepTwice(AsyncController):
    """Counts the step of the checkpoint once more when the run goes on from it."""

    _resumed = State(list[bool])

    def restore(self, saved: SavedRun) -> None:
        super().restore(saved)
        self.version += 1
        self._resumed = [True]

    async def _step(self) -> tuple[TrainedStep, dict[str, float]]:
        if self._resumed:
            self._resumed.clear()
            await self._ports.transfer(self.version)  # as the trainer does when it loads
        return await super()._step()


@trainer_defect(
    "staleness", evidence="newer than the trainer's", seen="verl#7569",
    when=Scenario(options={"sampler": {"name": "in_order", "max_lookahead_versions": 0}}),
)  # fmt: skip
class ConsumedAtAnEarlierVersion(RunEvents):
    """Counts a group as consumed at the version before the trainer's, so it looks fresher."""

    def selected(self, group_ids: Iterable[str], version: int) -> None:
        for group_id in group_ids:
            self.writer.write(
                Selected(group_id=group_id, step=version + 1, version=max(version - 1, 0))
            )
