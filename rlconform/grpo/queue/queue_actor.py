"""``QueueActor``: the trajectory queue as an asynchronous Ray actor, whose callers wait.

    producers ── put ────────────▶ ┐            waits for room
    consumers ── get_batch ──────▶ │ TrajectoryQueue   waits for groups
    rollouter ── drops(after) ───▶ │            waits for a drop
              ── advance, close ─▶ ┘            at once; they wake those that wait

All calls are coroutines of the actor's event loop, and none of them waits within a change of state.

A caller may be cancelled, or die, while its answer is on the way, and Ray may run calls in another
order than they were made. So calls are numbered, and each get says which answer its client has read
last: the groups of an answer that was not read are back at the front before the get is served.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, NamedTuple

from rlconform.grpo.events_actor import EventsActor
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
    """Name of a put or a get; a client makes one of each kind at a time, with growing numbers."""

    client: str
    kind: Literal["put", "get"]
    number: int


class QueueActor(EventsActor):
    """The queue of a run, for any number of clients."""

    event_role = "queue"

    def __init__(
        self, capacity: int, on_full: Literal["wait", "refuse"], max_staleness: int | None
    ) -> None:
        self._queue = TrajectoryQueue(capacity, on_full, max_staleness, write=self.write_event)
        self._changed = Changed()
        self._newest: dict[tuple[str, str], int] = {}  # number, by client and kind
        self._puts: dict[CallId, PutRequest] = {}  # that have no answer yet
        self._gets: dict[str, tuple[CallId, GetRequest]] = {}  # the last one of each client

    async def put(self, call: CallId, group: QueuedGroup) -> PutOutcome:
        """Put a group; wait while the queue is full, or refuse it, see ``TrajectoryQueue.put``."""
        if not self._begins(call):
            return PutOutcome.WITHDRAWN
        self.exchange_stamps(group.stamp)
        request = self._puts[call] = self._queue.put(group)
        self._changed.notify()
        try:
            await self._changed.until(lambda: request.outcome is not None)
        finally:
            del self._puts[call]
        assert request.outcome is not None  # awaited above
        return request.outcome

    async def get_batch(
        self, call: CallId, most: int, least: int, version: int, read: int
    ) -> QueueBatch:
        """Wait for ``least`` groups, or for the end, and take at most ``most`` of them.

        ``version`` is the trainer's, at which it trains on the groups; ``read`` is the number of
        the client's last get whose answer it has.
        """
        if not self._begins(call):
            return QueueBatch()
        before = self._gets.pop(call.client, None)
        if before is not None and before[0].number != read:
            self._queue.cancel(before[1])
        self._queue.advance(version)
        request = self._queue.get(most, least)
        self._gets[call.client] = (call, request)
        self._changed.notify()
        await self._changed.until(lambda: request.outcome is not None)
        assert request.outcome is not None  # awaited above
        return replace(request.outcome, stamp=self.exchange_stamps(0))

    async def cancel(self, call: CallId) -> None:
        """End a call whose answer nobody reads, also if it arrives later.

        The groups of a get return to the front; a put that was accepted stays accepted.
        """
        self._begins(call)
        if call in self._puts:
            self._queue.cancel(self._puts[call])
        last = self._gets.get(call.client)
        if last is not None and last[0] == call:
            del self._gets[call.client]
            self._queue.cancel(last[1])
        self._changed.notify()

    async def forget(self, client: str) -> None:
        """Cancel all calls of a client that is dead; what it had put stays in the queue."""
        calls = [call for call in self._puts if call.client == client]
        if client in self._gets:
            calls.append(self._gets[client][0])
        for call in calls:
            await self.cancel(call)

    def _begins(self, call: CallId) -> bool:
        """Note a call; return False if it was cancelled, or a later one came, before it arrived."""
        key = (call.client, call.kind)
        new = call.number > self._newest.get(key, -1)
        if new:
            self._newest[key] = call.number
        return new

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
