"""``QueueController``: rollouter, trainer and synchroniser around a trajectory queue.

    driver: one event loop                              actors
    ┌ QueueController ───────────────────┐
    │ Rollouter ── generate_group ───────┼──▶ rollout workers ── rows, rewards ──▶ plane
    │   waits: quota, max_inflight, room │                                           │
    │   └── put ─────────────────────────┼──▶ ┌ QueueActor ──────┐                   │
    │ QueueTrainer ── get_batch ─────────┼──▶ │ metas, versions  │                   │
    │   waits: groups                    │    └──────────────────┘                   │
    │   └── StreamingStep ── thread ─────┼──▶ policy workers ◀── fetch, write back ──┘
    │ ParameterSynchronizer ── thread ───┼──▶ weights to the rollout workers, every T steps
    │ stall watchdog: waits for nobody   │
    └────────────────────────────────────┘

The parts are those of ``AsyncController``, with the queue in the place of sampler and selection.
The death of any part ends the step: the rollouter always has a call in the queue, and the step
ends with whichever part ends first.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal

from rlconform.grpo.config.async_rl import AsyncRLConfig
from rlconform.grpo.queue.queue_client import QueueCalls, QueueClient, QueueLost
from rlconform.grpo.queue.queue_trainer import ParameterSynchronizer, QueueTrainer, SyncPeriod
from rlconform.grpo.queue.rollouter import Rollouter
from rlconform.grpo.replay.checkpoint import SavedRun
from rlconform.grpo.replay.samplers import StalenessSampler, WindowedSampler
from rlconform.grpo.replay.slots import DropReason
from rlconform.grpo.rollout.pump import RolloutPump
from rlconform.grpo.run_events import RunEvents
from rlconform.grpo.trainers.async_controller import AsyncController, Ports, RunSize
from rlconform.grpo.trainers.train_pump import TrainedStep, TrainPump
from rlconform.grpo.trainers.weight_sync import WeightSync


def queue_arguments(
    options: AsyncRLConfig, prompts: int
) -> tuple[int, Literal["wait", "refuse"], int]:
    """Return capacity, ``on_full`` and bound of the configured queue."""
    block = options.queue
    return block.capacity or block.quota(prompts), block.on_full, block.bound(prompts)


class QueueController(AsyncController):
    """Makes one training step per ``step``; ``calls`` lead to the run's queue, which it closes."""

    def __init__(
        self,
        options: AsyncRLConfig,
        size: RunSize,
        ports: Ports,
        calls: QueueCalls,
        version: int = 0,
        events: RunEvents | None = None,
    ) -> None:
        self._producer = QueueClient(calls, "rollouter")
        self._consumer = QueueClient(calls, "trainer")
        super().__init__(options, size, ports, version, events)
        assert isinstance(self._train, QueueTrainer)  # as the methods below make them
        assert isinstance(self._sync, ParameterSynchronizer)
        self._trainer, self._synchronizer = self._train, self._sync

    def restore(self, saved: SavedRun) -> None:
        """Go on from a checkpoint; the rollouter puts the ready groups when the run goes on."""
        self._synchronizer.engine_version = self.version
        super().restore(saved)

    async def close(self) -> None:
        """End the parts and the queue, and drop what is left. Idempotent."""
        await super().close()
        with suppress(QueueLost):  # the run has ended with this error already
            await self._producer.close()

    def _build_sampler(self) -> StalenessSampler:
        """Return what admits prompts and aborts those that are too old; nothing selects by it."""
        return WindowedSampler(self.buffer, self._options.queue.bound(self._size.prompts_per_step))

    def _pump_kind(self) -> Callable[..., RolloutPump]:
        return partial(Rollouter, self._producer)

    def _train_pump_kind(self) -> Callable[..., TrainPump]:
        return partial(QueueTrainer, self._consumer)

    def _sync_kind(self) -> Callable[..., WeightSync]:
        every = self._options.queue.trigger_parameter_sync_step
        period = SyncPeriod(every, self._size.max_steps)
        return partial(ParameterSynchronizer, self._producer, period, self.version)

    def _start_version(self) -> int:
        return self._synchronizer.engine_version

    async def _step(self) -> tuple[TrainedStep, dict[str, float]]:
        stale = self.buffer.fates[DropReason.STALE.value]
        step, metrics = await super()._step()
        if self.version == self._size.max_steps:
            await self._trainer.end(self.version)
        return step, metrics | await self._queue_metrics(stale)

    async def _queue_metrics(self, stale_before: int) -> dict[str, float]:
        """Return the queue's counts, of the run so far, and the groups that this step evicted."""
        counts = await self._consumer.statistics()
        evicted = self.buffer.fates[DropReason.STALE.value] - stale_before
        return {
            "step/evicted_stale_groups": float(evicted),
            "queue/size": float(counts.size),
            "queue/accepted": float(counts.accepted),
            "queue/got": float(counts.got),
            "queue/waiting_puts": float(counts.waiting_puts),
            **{f"queue/dropped/{reason}": float(n) for reason, n in sorted(counts.dropped.items())},
            **{f"queue/refused/{why}": float(n) for why, n in sorted(counts.refused.items())},
            "rollout/weight_version": float(self._synchronizer.engine_version),
        }
