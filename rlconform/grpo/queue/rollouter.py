"""``Rollouter``: the producer of a trajectory queue.

    RolloutPump ── generate ──▶ rows in the plane ── commit ──▶ put ── waits while full ──▶ queue
    drops ◀── queue: a queued group got too old      refused: full or too old
      └──────────── remove: rows cleared, the prompt is dispatched again ─┘
    close ── nothing is open any more ──▶ queue: the end marker

The pump's buffer is the *ledger* of open groups here: a slot is taken from dispatch until the
group was dropped, or was trained on and the engines have the new weights. So its capacity is the
quota between two syncs, and nobody selects groups from it.

The rollouter runs in the driver's event loop, not in an actor: it only waits and passes on
metas, while rollout workers generate. So one process writes the groups' events, counts their fates
and saves them in a checkpoint, and a run has one process less that can die.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from rlconform.grpo.queue.queue_client import QueueClient
from rlconform.grpo.queue.trajectory_queue import PutOutcome, QueuedGroup
from rlconform.grpo.replay.slots import DropReason, GroupRecord, SlotState
from rlconform.grpo.rollout.pump import RolloutPump

#: Why a group is dropped that the queue refuses.
_REFUSED = {PutOutcome.FULL: DropReason.OVERLOAD, PutOutcome.STALE: DropReason.STALE}


class Rollouter(RolloutPump):
    """A pump that puts committed groups into the queue."""

    def __init__(self, queue: QueueClient, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._trajectories = queue

    def _loops(self) -> list[Coroutine[Any, Any, None]]:
        return [self._put_restored(), *super()._loops(), self._drop_swept(), self._close_at_end()]

    async def _put_restored(self) -> None:
        """Put the groups of a checkpoint, which have their rows, in their order."""
        for group in self._buffer.state_dict():
            await self._put(group.prompt.group_id, group.record)

    async def _commit(self, group_id: str, record: GroupRecord) -> None:
        await super()._commit(group_id, record)
        if any(slot.group_id == group_id for slot in self._buffer.slots(SlotState.READY)):
            await self._put(group_id, record)  # else it was filtered

    async def _put(self, group_id: str, record: GroupRecord) -> None:
        """Put a ready group; drop it if it is refused. ``QueueClosed`` and ``QueueLost`` pass."""
        start = self._buffer.start_version(group_id)
        stamp = self._buffer.events.stamp()
        outcome = await self._trajectories.put(QueuedGroup(group_id, start, record, stamp))
        if outcome in _REFUSED:
            await self._buffer.remove_group(group_id, _REFUSED[outcome])
        self._changed.notify()

    async def _drop_swept(self) -> None:
        """Drop the groups that got too old in the queue.

        A call of the queue waits at all times, so the queue's death is noticed at once.
        """
        seen = 0
        while drops := await self._trajectories.drops(seen):
            seen = drops[-1].number
            for drop in drops:
                await self._buffer.remove_group(drop.group_id, drop.reason)

    async def _close_at_end(self) -> None:
        """Close the queue once every prompt of the run is trained on, in a step, or skipped."""
        await self._changed.until(self._all_taken)
        await self._trajectories.close()

    def _all_taken(self) -> bool:
        return (
            self.batches >= self._options.max_batches
            and not self.queue.waiting()
            and not self._buffer.slots(SlotState.RESERVED, SlotState.READY)
        )
