"""``QueueActor``: the trajectory queue as an asynchronous Ray actor, whose callers wait.

    producers ── put ────────────▶ ┐            waits for room
    consumers ── get_batch ──────▶ │ TrajectoryQueue   waits for groups
    rollouter ── drops(after) ───▶ │            waits for a drop
              ── advance, close ─▶ ┘            at once; they wake those that wait

All calls are coroutines of the actor's event loop, and none of them waits within a change of state.

A caller may be cancelled, or die, while its answer is on the way. So the last batch of a consumer
counts as *unconfirmed* until its next get: ``cancel`` and ``forget`` put it back to the front.
"""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

from rlconform.grpo.queue.trajectory_queue import (
    GetRequest,
    PutOutcome,
    PutRequest,
    QueueBatch,
    QueuedGroup,
    QueueDrop,
    QueueStatistics,
    TrajectoryQueue,
)
from rlconform.grpo.replay.changed import Changed


class CallId(NamedTuple):
    """Name of a put or a get; numbers grow within a client."""

    client: str
    number: int


class QueueActor:
    """The queue of a run; a client makes one get at a time."""

    def __init__(
        self, capacity: int, on_full: Literal["wait", "refuse"], max_staleness: int | None
    ) -> None:
        self._queue = TrajectoryQueue(capacity, on_full, max_staleness)
        self._changed = Changed()
        self._puts: dict[CallId, PutRequest] = {}  # that have no answer yet
        self._gets: dict[str, tuple[CallId, GetRequest]] = {}  # the last one of each client

    async def put(self, call: CallId, group: QueuedGroup) -> PutOutcome:
        """Put a group; wait while the queue is full, or refuse it, see ``TrajectoryQueue.put``."""
        request = self._puts[call] = self._queue.put(group)
        self._changed.notify()
        try:
            await self._changed.until(lambda: request.outcome is not None)
        except asyncio.CancelledError:
            await self.cancel(call)
            raise
        finally:
            del self._puts[call]
        assert request.outcome is not None  # awaited above
        return request.outcome

    async def get_batch(self, call: CallId, most: int, least: int, version: int) -> QueueBatch:
        """Wait for ``least`` groups, or for the end, and take at most ``most`` of them.

        ``version`` is the trainer's, at which it trains on the groups. The get confirms the
        client's batch before it.
        """
        _, before = self._gets.get(call.client, (None, None))
        if before is not None and before.outcome is None:
            raise RuntimeError(f"client {call.client!r} waits in another get already")
        self._queue.advance(version)
        request = self._queue.get(most, least)
        self._gets[call.client] = (call, request)
        self._changed.notify()
        try:
            await self._changed.until(lambda: request.outcome is not None)
        except asyncio.CancelledError:
            await self.cancel(call)
            raise
        assert request.outcome is not None  # awaited above
        return request.outcome

    async def cancel(self, call: CallId) -> None:
        """End a call whose answer nobody reads; a get's groups return to the front.

        Ignored for a get that was confirmed, and for a put that has an answer.
        """
        if call in self._puts:
            self._queue.cancel(self._puts[call])
        last, request = self._gets.get(call.client, (None, None))
        if last == call and request is not None:
            del self._gets[call.client]
            self._queue.cancel(request)
        self._changed.notify()

    async def forget(self, client: str) -> None:
        """Cancel all calls of a client that is dead; what it had put stays in the queue."""
        calls = [call for call in self._puts if call.client == client]
        if client in self._gets:
            calls.append(self._gets[client][0])
        for call in calls:
            await self.cancel(call)

    async def drops(self, after: int) -> tuple[QueueDrop, ...]:
        """Wait for drops with a higher number; return () once the queue is closed."""
        await self._changed.until(
            lambda: bool(self._queue.drops_after(after)) or self._queue.closed
        )
        return self._queue.drops_after(after)

    async def advance(self, version: int) -> None:
        """Note the trainer's version; groups that are too old for it are dropped."""
        self._queue.advance(version)
        self._changed.notify()

    async def close(self) -> None:
        """Refuse further puts, and wake everybody. Idempotent."""
        self._queue.close()
        self._changed.notify()

    async def statistics(self) -> QueueStatistics:
        """Return the counts of this moment."""
        return self._queue.statistics()
