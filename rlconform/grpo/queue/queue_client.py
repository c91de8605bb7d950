"""``QueueClient``: the calls of one producer or consumer of the trajectory queue.

    client ── call ──▶ queue actor ── answer ──▶ client waits
           ── cancelled meanwhile: send cancel ──▶ the groups return to the front

A call waits as long as the queue does, without a timeout: the death of the actor ends it at once,
with ``QueueLost``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Literal, Protocol

import ray
from ray.exceptions import RayActorError, RayTaskError

from rlconform.grpo.actor_events import ActorEvents
from rlconform.grpo.failures import first_line
from rlconform.grpo.queue.queue_actor import CallId, QueueActor
from rlconform.grpo.queue.trajectory_queue import (
    PutOutcome,
    QueueBatch,
    QueuedGroup,
    QueueDrop,
    QueueStatistics,
)
from rlconform.grpo.workers.worker_group import fetch

#: Calls that may wait in the actor at once, those of all clients together.
_WAITING_CALLS = 4096


class QueueLost(RuntimeError):
    """The actor of the trajectory queue has died."""


class QueueClosed(RuntimeError):
    """A group was put into a trajectory queue that is closed."""


class QueueCalls(Protocol):
    """The way to the queue; calls may arrive in any order."""

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """Call a method of ``QueueActor`` at once; the result can be awaited."""
        ...

    def send(self, method: str, *args: Any) -> None:
        """Call a method whose result nobody reads."""
        ...


class QueueActorCalls:
    """Calls a queue actor; ``start`` makes one, which ends with its last handle."""

    def __init__(self, actor: Any, timeout_s: float) -> None:
        self.actor = actor
        #: The driver's side of the actor's file of events.
        self.events = ActorEvents([actor], timeout_s, "the trajectory queue")

    @classmethod
    def start(
        cls,
        capacity: int,
        on_full: Literal["wait", "refuse"],
        max_staleness: int | None,
        timeout_s: float,
    ) -> QueueActorCalls:
        """Start a queue in an actor of its own, which takes no CPU; return once it answers.

        ``WorkerLost`` if it does not start in time.
        """
        actor_class = ray.remote(QueueActor).options(num_cpus=0, max_concurrency=_WAITING_CALLS)
        actor: Any = actor_class.remote(capacity, on_full, max_staleness)
        fetch(actor.statistics.remote(), timeout_s, "the start of the trajectory queue")
        return cls(actor, timeout_s)

    def call(self, method: str, *args: Any) -> Awaitable[Any]:
        """See ``QueueCalls``; raises ``QueueLost``, or what the queue raises."""
        return _answer(getattr(self.actor, method).remote(*args))

    def send(self, method: str, *args: Any) -> None:
        """See ``QueueCalls``; a dead actor is noticed by the calls that wait for answers."""
        getattr(self.actor, method).remote(*args)


async def _answer(reference: Any) -> Any:
    try:
        return await asyncio.wrap_future(reference.future())
    except RayActorError as error:
        raise QueueLost(f"the trajectory queue has died: {first_line(error)}") from error
    except RayTaskError as error:
        raise error.cause if isinstance(error.cause, Exception) else error from error


class QueueClient:
    """A producer or consumer; ``name`` is unique among the clients of a queue.

    Its puts take place one after the other, so its groups are in the queue in their order. It makes
    one get at a time.
    """

    def __init__(self, calls: QueueCalls, name: str) -> None:
        self._calls, self._name = calls, name
        self._putting = asyncio.Lock()
        self._puts = self._gets = 0  # numbers of the next ones
        self._read = -1  # number of the last get whose answer was read

    async def put(self, group: QueuedGroup) -> PutOutcome:
        """Put a group: ``ACCEPTED``, or refused as ``FULL`` or ``STALE``; ``QueueClosed``.

        A put that is cancelled is withdrawn, unless it was accepted already.
        """
        async with self._putting:
            call = CallId(self._name, "put", self._puts)
            self._puts += 1
            outcome: PutOutcome = await self._cancellable("put", call, group)
        if outcome is PutOutcome.CLOSED:
            raise QueueClosed(f"the trajectory queue is closed; got group {group.group_id!r}")
        return outcome

    async def get_batch(self, most: int, least: int, version: int) -> QueueBatch:
        """Take ``least`` to ``most`` groups that can be trained on at ``version``.

        The groups of a get that is cancelled return to the front of the queue.
        """
        call = CallId(self._name, "get", self._gets)
        self._gets += 1
        batch: QueueBatch = await self._cancellable(
            "get_batch", call, most, least, version, self._read
        )
        self._read = call.number
        return batch

    async def get(self, version: int) -> QueueBatch:
        """Take one group, or the end marker."""
        return await self.get_batch(1, 1, version)

    async def drops(self, after: int) -> tuple[QueueDrop, ...]:
        """Wait for drops with a number above ``after``; () once the queue is closed."""
        drops: tuple[QueueDrop, ...] = await self._calls.call("drops", after)
        return drops

    async def advance(self, version: int) -> None:
        """Tell the queue the trainer's version."""
        await self._calls.call("advance", version)

    async def close(self) -> None:
        """Close the queue for all its clients. Idempotent."""
        await self._calls.call("close")

    async def forget(self, client: str) -> None:
        """Cancel the calls of a client that is dead: its last batch returns to the front."""
        await self._calls.call("forget", client)

    async def statistics(self) -> QueueStatistics:
        """Return the counts of this moment."""
        statistics: QueueStatistics = await self._calls.call("statistics")
        return statistics

    async def _cancellable(self, method: str, call: CallId, *args: Any) -> Any:
        try:
            return await self._calls.call(method, call, *args)
        except asyncio.CancelledError:
            self._calls.send("cancel", call)
            raise
