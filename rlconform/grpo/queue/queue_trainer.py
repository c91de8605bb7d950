"""``QueueTrainer`` and ``ParameterSynchronizer``: the consumer of a queue, and its weight syncs.

    QueueTrainer ── get_batch ── waits ──▶ queue
                 ── chunk, chunk, finish ──▶ policy workers
    ParameterSynchronizer ── after each step: advance ──▶ queue
                          ── after every T steps and the last: WeightSync ──▶ engines
                                     └─ slots of trained groups are free: the quota is new

The trainer waits for groups, but not for those of prompts that were skipped meanwhile: then it
cancels its get, and asks for fewer. The queue sweeps at the version that the get names, and
``TrainPump`` checks the bound once more when the groups are consumed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rlconform.contract import KVBatchMeta
from rlconform.grpo.queue.queue_client import QueueClient
from rlconform.grpo.queue.trajectory_queue import QueueBatch
from rlconform.grpo.replay.samplers import joined_meta
from rlconform.grpo.replay.slots import Slot
from rlconform.grpo.trainers.train_pump import TrainedStep, TrainPump
from rlconform.grpo.trainers.weight_sync import WeightSync


class QueueEnd(RuntimeError):
    """The queue ended before the trainer's last step, or has groups left after it."""


class QueueTrainer(TrainPump):
    """Trains on the groups of a queue, in its order."""

    def __init__(self, queue: QueueClient, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._trajectories = queue

    async def _take(self, step: TrainedStep, version: int) -> tuple[list[Slot], KVBatchMeta] | None:
        """Take a batch for the step; None if prompts were skipped, so that it wants fewer."""
        missing = step.wanted - len(step.slots)
        batch = await self._batch(missing, min(self._min_groups, missing), version)
        if batch is None:
            return None
        self._events.observe(batch.stamp)
        if batch.ended:
            raise QueueEnd(
                f"step {version + 1} has {len(step.slots)} of {step.wanted} groups, and the "
                "trajectory queue has ended"
            )
        slots = self._buffer.take([group.group_id for group in batch.groups])
        for slot, group in zip(slots, batch.groups, strict=True):
            slot.record = group.record
        return slots, joined_meta(slots)

    async def end(self, version: int) -> None:
        """Take the end marker after the last step; ``QueueEnd`` if a group comes instead."""
        batch = await self._trajectories.get(version)
        if not batch.ended:
            left = [group.group_id for group in batch.groups]
            raise QueueEnd(f"expected no groups after the last step; the queue has {left}")

    async def _batch(self, most: int, least: int, version: int) -> QueueBatch | None:
        """Wait for a batch, or until prompts were skipped that the step need not wait for."""
        idle = asyncio.ensure_future(self._note_idle(least))
        get = asyncio.ensure_future(self._trajectories.get_batch(most, least, version))
        get.add_done_callback(_mark_seen)  # if this coroutine is cancelled, nobody reads its error
        skipped = asyncio.ensure_future(self._buffer.changed.until(lambda: bool(self._queue.lost)))
        try:
            await asyncio.wait([get, skipped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            idle.cancel()
            self.idle.switch(None)
            skipped.cancel()
            if not get.done():
                get.cancel()
        await asyncio.wait([get])  # a get at a time: the next one follows its cancellation
        return None if get.cancelled() else get.result()

    async def _note_idle(self, least: int) -> None:
        """Note why the trainer waits: for groups, and once they are ready, for the queue."""
        if self._buffer.ready_count < least:
            self.idle.switch("no_ready_groups")
            await self._buffer.changed.until(lambda: self._buffer.ready_count >= least)
        self.idle.switch("other")


@dataclass(frozen=True)
class SyncPeriod:
    """After which steps the engines get new weights."""

    every: int
    last_step: int

    def is_due(self, step: int) -> bool:
        """Whether weights are published after this step; after the last one always."""
        return step % self.every == 0 or step == self.last_step


class ParameterSynchronizer(WeightSync):
    """Publishes weights when they are due, and tells the queue every version."""

    def __init__(
        self, queue: QueueClient, period: SyncPeriod, version: int, *arguments: Any, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._trajectories, self._period = queue, period
        #: The version of the engines' weights; the trainer is less than a period ahead.
        self.engine_version = version

    async def publish(self, version: int, bump: Callable[[], None]) -> int:
        """Make ``version`` the run's and, if a sync is due, the engines'."""

        def applied() -> None:
            bump()
            self.engine_version = version

        aborted = 0
        if self._period.is_due(version):
            aborted = await super().publish(version, applied)
        else:
            bump()
        await self._trajectories.advance(version)
        return aborted


def _mark_seen(get: asyncio.Future[QueueBatch]) -> None:
    if not get.cancelled():
        get.exception()
