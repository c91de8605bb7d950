"""``AsyncPlaneTrainer``: GRPO whose rollouts and training run at the same time over a plane.

    driver, one event loop                         actors
    ┌ AsyncController ───────────────┐
    │ rollout pump ── generate_group ┼───▶ rollout workers ── put ──▶ plane
    │      ▲ gate, slots             │                                  │
    │ replay buffer (metas, versions)│                                  │
    │      ▼ ready groups            │                                  ▼
    │ train pump ── StreamingStep ───┼─ thread ▶ policy workers ◀─ fetch, write back
    │      ▼ version                 │
    │ weight sync ───────────────────┼─ thread ▶ weights of rank 0 ──▶ rollout workers
    │ stall watchdog                 │
    └────────────────────────────────┘

``step`` runs the loop until one step is trained and published. Between two steps the loop rests,
while generations in flight go on in their actors: validation and checkpoints see a state that
doesn't change. Rows are written by rollout workers once their rewards are known, and cleared by the
driver after their step; the driver itself never has rows, but for a checkpoint.

With lookahead 0 and one group in flight, the steps equal those of ``PlaneTrainer`` bit for bit. An
engine rounds by its batch, so that one must generate group by group too, with
``generation.batch_size`` equal to ``grpo.num_generations_per_prompt``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from rlconform.contract import DataPlaneClient
from rlconform.events.schema import EventSource
from rlconform.grpo.actors import RunActors
from rlconform.grpo.algorithm.advantages import group_baseline
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.failures import DataFailure, ModelFailure
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.planned_steps import last_step
from rlconform.grpo.queue.queue_client import QueueActorCalls
from rlconform.grpo.queue.queue_controller import QueueController, queue_arguments
from rlconform.grpo.replay.checkpoint import SavedRun
from rlconform.grpo.replay.slots import GroupRecord
from rlconform.grpo.rollout.group_port import GroupPort
from rlconform.grpo.rollout.plane_worker import PlaneRolloutWorker
from rlconform.grpo.rollout.pump import Aborted
from rlconform.grpo.rollout.worker import RowSummary
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.tasks import Problem
from rlconform.grpo.trainers.async_controller import (
    AsyncController,
    Ports,
    RunSize,
    cancel_others,
)
from rlconform.grpo.trainers.base import StepResult, Trainer
from rlconform.grpo.trainers.call_threads import CallThreads
from rlconform.grpo.trainers.driver_step import validation_metrics
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, VAL_PARTITION, PlanePolicy
from rlconform.grpo.trainers.saved_rows import load_rows, save_rows
from rlconform.grpo.trainers.streaming_step import StreamingStep
from rlconform.plane import mint_sample_ids

_RUN = "async_run.json"
_ROWS = "rows"
#: Seconds that cancelled tasks of a failed run, and then its calls in threads, get to end.
_LAST_CALLS_S = 10.0


class AsyncPlaneTrainer(Trainer):
    """Trains on ``PlanePolicyWorker`` and ``PlaneRolloutWorker`` actors; needs ``async_rl:``.

    ``client`` owns the plane; the caller closes ``client``. ``attach`` opens a client in an actor.
    """

    def __init__(
        self, config: MasterConfig, actors: RunActors, client: DataPlaneClient, attach: Attach
    ) -> None:
        super().__init__(config, actors)
        if config.async_rl is None:
            raise ValueError("asynchronous training needs the section async_rl:")
        grpo = config.grpo
        self._last_step = last_step(grpo, self.problems, grpo.num_prompts_per_step)
        self.policy = PlanePolicy(actors, config, client, attach, self.pad_token_id, self.events)
        self.policy.prepare_step(
            config.async_rl.max_buffered_rollouts * grpo.num_generations_per_prompt,
            grpo.num_generations_per_prompt,
        )
        self._steps = StreamingStep(self.policy, config, self.timer)
        self._port = GroupPort(actors, TRAIN_PARTITION, self.events)
        size = RunSize(
            grpo.num_prompts_per_step,
            grpo.num_generations_per_prompt,
            self._last_step,
            TRAIN_PARTITION,
            grpo.dynamic_sampling_max_gen_batches * grpo.num_prompts_per_step,
        )
        ports = Ports(
            self._loader.take,
            self._generate,
            self._port.abort,
            self._steps,
            self._transfer,
            self._clear_rows,
            self._is_uniform,
        )
        self._queue = start_queue(config, self.events)
        self._controller = build_controller(config.async_rl, size, ports, self._queue, self.events)
        self._loop = asyncio.Runner()
        self._loop_is_open = True
        self._threads = CallThreads()
        self._loop.get_loop().set_default_executor(self._threads)

    def step(self) -> StepResult:
        """Train one step, while prompts of later steps are generated."""
        started = time.perf_counter()
        _, metrics = self._loop.run(self._controller.step())
        self.steps_done = self._controller.version
        result = self._steps.result()
        times = {**self.timer.take(), "time/step": time.perf_counter() - started}
        metrics = {**result.metrics, **metrics, **times, **self.policy.traffic()}
        return StepResult(result.sample_ids, result.advantages, metrics)

    @property
    def finished(self) -> bool:
        """Whether the run has made its last step; the dataloader is ahead of the steps."""
        return self.steps_done >= self._last_step

    def validate(self) -> dict[str, float]:
        """Generate answers to the validation problems; a problem that fails is counted."""
        grpo = self.config.grpo
        summaries: list[RowSummary] = []
        failed = 0
        with self.timer.stage("validation"):
            for problems in self.validation_batches():
                self.policy.prepare_val_partition(
                    len(problems) * grpo.val_num_generations_per_prompt
                )
                try:
                    summaries += self._validate(problems)
                    continue
                except (DataFailure, ModelFailure):
                    pass  # one problem of the batch; the others are answered one by one
                for problem in problems:
                    try:
                        summaries += self._validate([problem])
                    except (DataFailure, ModelFailure):
                        failed += 1
        generations = grpo.val_num_generations_per_prompt
        metrics = validation_metrics(summaries, generations) if summaries else {}
        return {**metrics, "val/failed": float(failed), **self.timer.take()}

    def _validate(self, problems: list[Problem]) -> list[RowSummary]:
        meta, summaries = self.actors.call_rollout_worker(
            PlaneRolloutWorker.collect_to_plane, problems, "val", VAL_PARTITION
        )
        self.policy.finish_step(meta)
        return summaries

    def save(self, folder: Path) -> None:
        """Write a checkpoint, with the groups that are dispatched and not trained on."""
        super().save(folder)
        saved = self._controller.saved()
        assert self.config.async_rl is not None  # checked at the start
        if self.config.async_rl.checkpoint_rows:
            save_rows(
                self.policy.client, [group.record.meta for group in saved.groups], folder / _ROWS
            )
        else:
            saved = saved.without_rows()
        (folder / _RUN).write_text(saved.dump(), "utf-8")

    def load(self, folder: Path) -> None:
        """Load a checkpoint; put the rows of its ready groups into the plane again."""
        super().load(folder)
        saved = self._saved_in(folder)
        self._controller.version = self.steps_done
        self._controller.restore(saved)
        unfinished = [prompt.group_id for prompt in saved.unfinished]
        self.policy.discard_samples(
            mint_sample_ids(unfinished, self.config.grpo.num_generations_per_prompt)
        )
        if saved.groups:
            load_rows(
                self.policy.client, [group.record.meta for group in saved.groups], folder / _ROWS
            )

    def groups_in(self, folder: Path) -> list[str]:
        """Return the groups that a checkpoint holds with their rows."""
        return [group.prompt.group_id for group in self._saved_in(folder).groups]

    def _saved_in(self, folder: Path) -> SavedRun:
        return SavedRun.parse(
            (folder / _RUN).read_text("utf-8"),
            expected_partition_id=TRAIN_PARTITION,
            expected_group_size=self.config.grpo.num_generations_per_prompt,
        )

    def note_checkpoint(self) -> None:
        """Write into the event log that a checkpoint is complete, and what it holds."""
        assert self.config.async_rl is not None  # checked at the start
        self._controller.note_checkpoint(with_rows=self.config.async_rl.checkpoint_rows)

    def event_sources(self) -> list[EventSource]:
        """Return the living actors with open files of events, and the queue."""
        queue = self._queue.events.sources if self._queue is not None else []
        return [*super().event_sources(), *queue]

    def fates(self) -> Mapping[str, int]:
        """Return the controller's counts of groups by fate."""
        return self._controller.buffer.fates

    def shutdown(self) -> None:
        """End what is in flight, clear its rows, and detach the actors from the plane."""
        self._loop.run(self._controller.close())
        self._loop.close()
        self._loop_is_open = False
        self.policy.shutdown()
        if self._queue is not None:
            self._queue.events.close()
        super().shutdown()

    def end_after_error(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End what still runs in the event loop, without a call of an actor, and the event log.

        Calls in threads get some seconds, so that the log has their outcomes. Those of the plane
        that have not ended by then have an unknown outcome.
        """
        if kind is not None and self._loop_is_open:
            self._loop_is_open = False
            self._loop.run(cancel_others(_LAST_CALLS_S))
            self._threads.wait(_LAST_CALLS_S)
            self.policy.give_up_calls()
            # ``Runner.close`` would wait for threads whose calls may never be answered.
            self._loop.get_loop().close()
        super().end_after_error(kind, error, trace)

    async def _generate(
        self, problem: Problem, group_id: str, partial: Any
    ) -> GroupRecord | Aborted:
        with self.timer.span("generation"):
            return await self._port.generate(problem, group_id, partial)

    async def _transfer(self, version: int) -> None:
        with self.timer.span("weight_sync"):
            await asyncio.to_thread(self.actors.refit, version, self.events.stamp())
            await asyncio.to_thread(self.actors.exchange_stamps, self.events)

    async def _clear_rows(self, sample_ids: list[str]) -> None:
        await asyncio.to_thread(self.policy.discard_samples, sample_ids)

    def _is_uniform(self, record: GroupRecord) -> bool:
        """Whether dynamic sampling replaces the group: by the rewards before scaling."""
        if not self.config.grpo.use_dynamic_sampling:
            return False
        given = [summary.reward for summary in record.summaries]
        rewards = torch.tensor([reward for reward in given if reward is not None])
        _, std = group_baseline(rewards, ["group"] * len(rewards))
        return bool(std[0] <= self.config.grpo.dynamic_sampling_std_tolerance)


def start_queue(config: MasterConfig, events: RunEvents) -> QueueActorCalls | None:
    """Start the actor of a trajectory queue, with its file of events; None for another transport.

    ``WorkerLost`` if it does not start in time.
    """
    options = config.async_rl
    if options is None or options.transport != "queue":
        return None
    arguments = queue_arguments(options, config.grpo.num_prompts_per_step)
    queue = QueueActorCalls.start(*arguments, config.cluster.timeout_s)
    if events.place is not None:
        queue.events.open(events.place, events)
    return queue


def build_controller(
    options: AsyncRLConfig,
    size: RunSize,
    ports: Ports,
    queue: QueueActorCalls | None,
    events: RunEvents,
) -> AsyncController:
    """Create the controller, of a trajectory queue if there is one."""
    if queue is None:
        return AsyncController(options, size, ports, events=events)
    return QueueController(options, size, ports, queue, events=events)
