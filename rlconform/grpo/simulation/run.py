"""``run_steps``: an asynchronous run on a simulated clock, with restarts from checkpoints.

part: begin_part ─▶ AsyncController ─▶ restore ─▶ workers ─▶ step, step, ... ─▶ save ─▶ close
a restart: the next part begins with what the last one has saved, and a new plane
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.event_log import declared_async_run
from rlconform.grpo.queue.queue_actor import QueueActor
from rlconform.grpo.queue.queue_controller import QueueController, queue_arguments
from rlconform.grpo.replay.budget import StepTooSmall, TooManySkippedPrompts
from rlconform.grpo.replay.checkpoint import SavedRun
from rlconform.grpo.rollout.pump import TooManyUniformGroups
from rlconform.grpo.run_events import RunEnd
from rlconform.grpo.simulation.engines import GROUP
from rlconform.grpo.simulation.loop import simulate
from rlconform.grpo.simulation.queue_calls import SimulatedCalls
from rlconform.grpo.simulation.world import PARTITION, World
from rlconform.grpo.trainers.async_controller import AsyncController, RunSize
from rlconform.grpo.trainers.saved_rows import load_rows, save_rows
from rlconform.grpo.trainers.stall_watchdog import StallError

#: Errors with which a run may end.
TYPED_ERRORS = (TooManySkippedPrompts, StepTooSmall, TooManyUniformGroups, StallError)


@dataclass
class SimulatedOutcome:
    """A run that has ended."""

    world: World
    controller: AsyncController | None  # None if the run ended with an error
    metrics: list[dict[str, float]]
    error: Exception | None = None
    queue: QueueActor | None = None  # of the last part, with ``transport: queue``


class SimulatedRun:
    """One run, whose parts follow each other; ``rows`` is the file of its checkpoints' rows."""

    def __init__(
        self, config: AsyncRLConfig, world: World, prompts: int, steps: int, rows: Path
    ) -> None:
        self._config, self._world, self._prompts, self._steps = config, world, prompts, steps
        self._rows = rows
        self.metrics: list[dict[str, float]] = []
        self.queue: QueueActor | None = None

    async def part(
        self, first: int, last: int, text: str | None
    ) -> tuple[str | None, AsyncController]:
        """Make the steps from ``first`` to ``last``, from a checkpoint or from the start."""
        world, config = self._world, self._config
        with world.begin_part() as events:
            events.begin(declared_async_run(config, self._prompts, GROUP, self._steps))
            controller = self._controller(first)
            if text is not None:
                self._load(controller, first, text)
            world.start_workers()
            saved = None
            try:
                for _ in range(first, last):
                    self.metrics.append((await controller.step())[1])
                if last < self._steps:
                    saved = self._save(controller)
                    controller.note_checkpoint(with_rows=config.checkpoint_rows)
            finally:
                await controller.close()
                if self.queue is not None:
                    self.queue.close_events()
                await world.end_part()
                end: RunEnd = "failed" if saved is None else "cancelled"
                if len(self.metrics) == self._steps:
                    end = "completed"
                events.finish(end, controller.buffer.fates)
        return saved, controller

    def _controller(self, version: int) -> AsyncController:
        size = RunSize(
            self._prompts, GROUP, self._steps, PARTITION, max_uniform_in_a_row=3 * self._prompts
        )
        world, config = self._world, self._config
        if config.transport == "buffer":
            return AsyncController(
                config, size, world.ports(), version=version, events=world.events
            )
        self.queue = QueueActor(*queue_arguments(config, self._prompts))
        self.queue.event_writer = world.log.writer("queue")
        calls = SimulatedCalls(self.queue, world.queue_s, world.faults.queue_dies_at)
        return QueueController(
            config, size, world.ports(), calls, version=version, events=world.events
        )

    def _save(self, controller: AsyncController) -> str:
        """Save as ``AsyncPlaneTrainer.save`` does."""
        saved = controller.saved()
        if self._config.checkpoint_rows:
            metas = [group.record.meta for group in saved.groups]
            save_rows(self._world.driver_client, metas, self._rows)
        else:
            saved = saved.without_rows()
        return saved.dump()

    def _load(self, controller: AsyncController, version: int, text: str) -> None:
        """Load as ``AsyncPlaneTrainer.load`` does."""
        world = self._world
        saved = SavedRun.parse(text, expected_partition_id=PARTITION, expected_group_size=GROUP)
        world.position = saved.dispatched  # the dataloader's, in the same checkpoint
        world.events.resumed_from(version, [group.prompt.group_id for group in saved.groups])
        controller.restore(saved)
        metas = [group.record.meta for group in saved.groups]
        if metas:
            load_rows(world.driver_client, metas, self._rows)
        world.rows.update(sample_id for meta in metas for sample_id in meta.sample_ids)


def run_steps(
    config: AsyncRLConfig, world: World, *, prompts: int, steps: int, restarts: Sequence[int] = ()
) -> SimulatedOutcome:
    """Run ``steps`` steps; before each step in ``restarts`` start anew from a checkpoint."""
    with TemporaryDirectory() as folder:
        run = SimulatedRun(config, world, prompts, steps, Path(folder) / "rows")
        saved: str | None = None
        ends = [*restarts, steps]
        for first, last in zip([0, *restarts], ends, strict=True):
            try:
                saved, controller = simulate(run.part(first, last, saved))
            except TYPED_ERRORS as error:
                return SimulatedOutcome(world, None, run.metrics, error, run.queue)
    return SimulatedOutcome(world, controller, run.metrics, queue=run.queue)
