"""``AsyncController``: runs rollouts and training at the same time, in one event loop.

    ┌── RolloutPump ──────────────┐        ┌── TrainPump ────────────────────────┐
    │ admit ▶ reserve ▶ generate ─┼─ commit ▶ ReplayBuffer ▶ select ▶ chunk ▶ finish
    └──────▲──────────────────────┘        └─────────────────────┬───────────────┘
           └── resume ── WeightSync: pause, transfer, bump ◀── a version is trained

Who waits for whom: the rollout pump for the sampler's gate (the trainer's version), a slot, an
actor, and the end of a weight sync; the train pump for ready groups and for the policy workers; the
weight sync for generations in flight, unless they go on, and for the engines. The stall watchdog
waits for nobody. An error of any of them ends the step, and so the run.

The controller knows no actor and no plane: ``Ports`` are its only way out, so the tests drive it on
a simulated clock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.replay.buffer import ReplayBuffer
from rlconform.grpo.replay.checkpoint import SavedRun, next_attempts
from rlconform.grpo.replay.samplers import StalenessSampler, build_sampler
from rlconform.grpo.replay.slots import GroupRecord, SlotState
from rlconform.grpo.replay.versions import staleness_metrics
from rlconform.grpo.rollout.prompt_queue import TakeProblems
from rlconform.grpo.rollout.pump import GenerateGroup, PumpOptions, RolloutPump
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.trainers.stall_watchdog import RunView, watch
from rlconform.grpo.trainers.train_pump import TrainedStep, TrainPump, TrainSteps
from rlconform.grpo.trainers.weight_sync import WeightSync


@dataclass(frozen=True)
class Ports:
    """What the controller calls outside of its event loop."""

    take_problems: TakeProblems
    generate: GenerateGroup
    abort: Callable[[Sequence[str]], None]  # ends generations, without waiting
    steps: TrainSteps
    transfer: Callable[[int], Awaitable[None]]  # the weights of this version to all engines
    clear_rows: Callable[[list[str]], Awaitable[None]]
    is_uniform: Callable[[GroupRecord], bool]


@dataclass(frozen=True)
class RunSize:
    """The sizes of a run."""

    prompts_per_step: int
    group_size: int
    max_steps: int
    partition_id: str
    max_uniform_in_a_row: int = 0


class AsyncController:
    """Makes one training step per ``step``, while prompts are generated ahead."""

    def __init__(
        self,
        options: AsyncRLConfig,
        size: RunSize,
        ports: Ports,
        version: int = 0,
        events: RunEvents | None = None,
    ) -> None:
        self.version = version
        self._options, self._size, self._ports = options, size, ports
        self.buffer = ReplayBuffer(
            options.slots(size.prompts_per_step),
            size.group_size,
            size.partition_id,
            ports.clear_rows,
            events,
        )
        self._sampler = self._build_sampler()
        self.pump = self._pump_kind()(
            ports.take_problems,
            self.buffer,
            self._sampler,
            ports.generate,
            ports.abort,
            self._start_version,
            PumpOptions(
                size.prompts_per_step,
                size.max_steps,
                max_inflight=options.max_inflight_prompts,
                continue_aborted=options.partial_rollouts,
                max_uniform_in_a_row=size.max_uniform_in_a_row,
                failures=options.rollout_failure,
            ),
            ports.is_uniform,
        )
        self._train = self._train_pump_kind()(
            self.buffer,
            self._sampler,
            self.pump.queue,
            ports.steps,
            prompts_per_step=size.prompts_per_step,
            min_groups=options.min_groups_for_streaming_train,
            failures=options.rollout_failure,
        )
        self._sync = self._sync_kind()(
            self.pump,
            self.buffer,
            self._sampler,
            ports.transfer,
            in_flight_updates=options.in_flight_weight_updates,
            abort_in_flight=options.partial_rollouts,
        )
        self._stage = "has not begun"
        self._background: list[asyncio.Task[None]] = []

    async def step(self) -> tuple[TrainedStep, dict[str, float]]:
        """Train one step, and publish its weights; return its groups and metrics.

        Between two calls the event loop rests: generations in flight go on in their actors, and
        nothing is dispatched. Any error of a pump or of the watchdog is raised here.
        """
        if not self._background:
            self._background = [
                asyncio.ensure_future(self.pump.run()),
                asyncio.ensure_future(
                    watch(
                        self._options.stall_watchdog, lambda: self.buffer.changed.count, self.view
                    )
                ),
            ]
        training = asyncio.ensure_future(self._step())
        await asyncio.wait([training, *self._background], return_when=asyncio.FIRST_COMPLETED)
        for task in self._background:
            if task.done() and not task.cancelled():
                task.exception()  # marks it as seen: the step may have an error of its own
        if not training.done():
            training.cancel()
            await asyncio.wait([training])
            for task in self._background:
                if task.done():
                    task.result()
        result = training.result()
        self.pump.check()  # an error at the same moment: no checkpoint may follow it
        return result

    async def close(self) -> None:
        """End the pumps, and drop what is left in the buffer. Idempotent."""
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        self._background = []
        await self.pump.close()

    def view(self) -> RunView:
        """Return what the watchdog needs to name what is stuck."""
        step = self._train.current
        return RunView(
            version=self.version,
            stage=self._stage,
            step_groups=len(step.slots) if step else 0,
            step_wanted=step.wanted if step else 0,
            slots=self.buffer.state_counts(),
            capacity=self.buffer.capacity,
            generating=tuple(self.pump.generating()),
            queued=len(self.pump.queue),
            paused=self.pump.paused,
            all_dispatched=self.pump.batches >= self._size.max_steps,
        )

    def saved(self) -> SavedRun:
        """Return what is dispatched and not trained on, for a checkpoint between two steps."""
        pump = self.pump
        return SavedRun.of(self.buffer, pump.queue, pump.unfinished(), pump.batches)

    def note_checkpoint(self, *, with_rows: bool) -> None:
        """Write into the event log that a checkpoint holds what is ready and what is in flight."""
        ready, reserved = (
            [slot.group_id for slot in self.buffer.slots(state)]
            for state in (SlotState.READY, SlotState.RESERVED)
        )
        buffered, in_flight = (ready, reserved) if with_rows else ([], [*ready, *reserved])
        self.buffer.events.checkpoint_saved(self.version, buffered, in_flight, self.buffer.fates)

    def restore(self, saved: SavedRun) -> None:
        """Go on from a checkpoint, before the first step; ready groups need their rows."""
        self.buffer.load_state_dict(saved.groups)
        self.buffer.fates.update(saved.fates)
        self.pump.batches = saved.batches
        self.pump.queue.restore(
            next_attempts(saved.unfinished), saved.dispatched, saved.skipped, dict(saved.lost)
        )
        self._sampler.set_dispatch_index(saved.batches)

    def _build_sampler(self) -> StalenessSampler:
        return build_sampler(self._options.sampler, self.buffer)

    def _pump_kind(self) -> Callable[..., RolloutPump]:
        return RolloutPump

    def _train_pump_kind(self) -> Callable[..., TrainPump]:
        return TrainPump

    def _sync_kind(self) -> Callable[..., WeightSync]:
        return WeightSync

    def _start_version(self) -> int:
        """Return the engines' version, with which a generation starts now."""
        return self.version

    async def _step(self) -> tuple[TrainedStep, dict[str, float]]:
        clock = asyncio.get_running_loop().time
        self._enter("waits for groups or trains on them")
        step = await self._train.step(self.version)
        self._enter("publishes weights")
        started = clock()
        aborted = await self._sync.publish(self.version + 1, self._bump)
        self._enter("has finished a step")
        return step, self._metrics(step, aborted) | {"time/weight_sync": clock() - started}

    def _bump(self) -> None:
        self.version += 1

    def _enter(self, stage: str) -> None:
        self._stage = stage
        self.buffer.changed.notify()

    def _metrics(self, step: TrainedStep, aborted: int) -> dict[str, float]:
        waits = {"trainer": self._train.idle.take(), "generation": self.pump.idle.take()}
        counts = self.buffer.state_counts()
        return {
            **staleness_metrics(step.versions),
            **{f"groups/{fate}": float(n) for fate, n in sorted(self.buffer.fates.items())},
            **{
                f"idle/{side}/{cause}_s": seconds
                for side, causes in waits.items()
                for cause, seconds in sorted(causes.items())
            },
            "step/groups": float(len(step.slots)),
            "step/chunks": float(step.chunks),
            "step/promoted_groups": float(step.promoted),
            "step/evicted_stale_groups": float(step.evicted),
            "step/aborted_stale_inflight_groups": float(aborted),
            "buffer/size": float(self.buffer.size),
            "buffer/ready": float(counts[SlotState.READY.value]),
            "rollout/inflight": float(self.pump.inflight),
            "rollout/dispatched": float(self.pump.queue.dispatched),
            "rollout/skipped": float(self.pump.queue.skipped.total()),
        }


async def cancel_others(timeout_s: float) -> None:
    """Cancel all other tasks of this event loop, and wait until they have ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        ended, _ = await asyncio.wait(others, timeout=timeout_s)
        for task in ended:
            if not task.cancelled():
                task.exception()  # marks it as seen: the run has an error already
