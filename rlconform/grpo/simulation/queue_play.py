"""``play_queue``: a trajectory queue with its clients on a simulated clock, and its history.

    producers ── put ──▶ QueueClient ┐                               answers
    consumers ── get ──▶ QueueClient ┼─ SimulatedCalls ──▶ QueueActor ───────▶ QueueHistory
    owner ── advance, drops, close ──┘

Calls and answers take different times, so they overtake each other. The owner closes the queue when
the plan says so, at the latest when the producers have ended; then consumers go on until the end
marker, and the owner drains what another one has given back after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from rlconform.contract import KVBatchMeta
from rlconform.grpo.queue.queue_actor import QueueActor
from rlconform.grpo.queue.queue_client import QueueClient, QueueClosed
from rlconform.grpo.queue.queue_history import OWNER, GetLife, PutLife, QueueHistory, QueueLimits
from rlconform.grpo.queue.trajectory_queue import PutOutcome, QueuedGroup
from rlconform.grpo.replay.slots import GroupRecord
from rlconform.grpo.simulation.loop import simulate
from rlconform.grpo.simulation.queue_calls import SimulatedCalls

#: Mean seconds of a way to the queue, or back, and the longest of a call and its answer.
_WAY_S = 0.01
_SLACK_S = 4 * _WAY_S + 0.001
#: Simulated seconds that a play gets, that producers get, and that the queue rests before the end.
_PATIENCE_S, _STUCK_S, _REST_S = 1000.0, 100.0, 1.0


@dataclass(frozen=True)
class PutPlan:
    """A put, some time after the producer's last one has ended."""

    after_s: float = 0.0
    age: int = 0  # versions before the newest one
    cancelled_after_s: float | None = None


@dataclass(frozen=True)
class GetPlan:
    """A get, some time after the consumer's last one has ended."""

    after_s: float = 0.0
    most: int = 2
    least: int = 1
    cancelled_after_s: float | None = None


@dataclass(frozen=True)
class QueuePlan:
    """Everything that happens; after the last of its plans a consumer goes on with single gets."""

    producers: Sequence[Sequence[PutPlan]]
    consumers: Sequence[Sequence[GetPlan]]
    capacity: int = 2
    on_full: Literal["wait", "refuse"] = "wait"
    max_staleness: int | None = None
    advances_at_s: Sequence[float] = ()
    closed_at_s: float | None = None
    consumers_stop: bool = False  # after their plans; the queue then fills up, and is closed


def queued(name: str, start: int = 0) -> QueuedGroup:
    """Return a group of one row."""
    meta = KVBatchMeta("train", None, [f"{name}_g0"])
    return QueuedGroup(name, start, GroupRecord(meta, (), start))


def play_queue(plan: QueuePlan) -> QueueHistory:
    """Let a plan happen."""
    return simulate(_QueuePlay(plan).run())


class _QueuePlay:
    def __init__(self, plan: QueuePlan) -> None:
        self._plan, self._version, self._drops_seen = plan, 0, 0
        limits = QueueLimits(plan.capacity, plan.on_full, plan.max_staleness, _SLACK_S)
        self._history = QueueHistory(limits)
        self._calls = SimulatedCalls(
            QueueActor(plan.capacity, plan.on_full, plan.max_staleness), _WAY_S
        )
        self._owner = QueueClient(self._calls, OWNER)
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> QueueHistory:
        playing = asyncio.ensure_future(self._play())
        await asyncio.wait([playing], timeout=_PATIENCE_S)
        seen = deepcopy(self._history)  # what the end of the loop adds is not of the play
        if playing.done():
            playing.result()
        for task in (playing, *self._tasks):
            task.cancel()
        await asyncio.sleep(_REST_S)  # a client that is cancelled sends a last call
        return seen

    async def _play(self) -> None:
        producing = [self._start(self._produce(*each)) for each in enumerate(self._plan.producers)]
        consuming = [self._start(self._consume(*each)) for each in enumerate(self._plan.consumers)]
        others = [self._start(self._advance()), self._start(self._note_drops())]
        if self._plan.closed_at_s is not None:
            await asyncio.sleep(self._plan.closed_at_s)
        else:
            if producing:
                await asyncio.wait(producing, timeout=_STUCK_S)
            await asyncio.sleep(_REST_S)
        self._history.closed = asyncio.get_running_loop().time()
        await self._owner.close()
        await asyncio.gather(*producing, *consuming, *others)
        while await self._get(self._owner, OWNER, GetPlan(most=100)):
            pass
        await self._note_drops()  # those of after the end

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self._tasks.append(asyncio.create_task(coroutine))
        return self._tasks[-1]

    async def _produce(self, index: int, puts: Sequence[PutPlan]) -> None:
        loop, name = asyncio.get_running_loop(), "abc"[index]
        client = QueueClient(self._calls, name)
        for number, plan in enumerate(puts):
            await asyncio.sleep(plan.after_s)
            start = max(self._version - plan.age, 0)
            life = PutLife(name, f"{name}{number}", start, loop.time())
            self._history.puts.append(life)
            answer = client.put(queued(life.group, start))
            try:
                life.outcome = await _patient(answer, plan.cancelled_after_s)
            except QueueClosed:
                life.outcome = PutOutcome.CLOSED
            except TimeoutError:
                life.cancelled = True
            life.ended = loop.time()

    async def _consume(self, index: int, gets: Sequence[GetPlan]) -> None:
        client, name = QueueClient(self._calls, f"trainer-{index}"), f"trainer-{index}"
        for plan in gets:
            await asyncio.sleep(plan.after_s)
            if not await self._get(client, name, plan):
                return
        while not self._plan.consumers_stop and await self._get(client, name, GetPlan()):
            pass

    async def _get(self, client: QueueClient, name: str, plan: GetPlan) -> bool:
        """Make a get; return whether there may be more groups."""
        loop = asyncio.get_running_loop()
        least = min(plan.least, plan.most, self._plan.capacity)
        life = GetLife(name, plan.most, least, self._version, loop.time())
        self._history.gets.append(life)
        try:
            batch = await _patient(
                client.get_batch(plan.most, least, self._version), plan.cancelled_after_s
            )
            life.groups = tuple(each.group_id for each in batch.groups)
            life.end_marker = batch.ended
        except TimeoutError:
            life.cancelled = True
        life.ended = loop.time()
        return not life.end_marker

    async def _advance(self) -> None:
        loop = asyncio.get_running_loop()
        for at in sorted(self._plan.advances_at_s):
            await asyncio.sleep(max(at - loop.time(), 0.0))
            self._version += 1
            self._history.advances.append((loop.time(), self._version))
            await self._owner.advance(self._version)

    async def _note_drops(self) -> None:
        while drops := await self._owner.drops(self._drops_seen):
            self._drops_seen = drops[-1].number
            self._history.dropped += [drop.group_id for drop in drops]


async def _patient(call: Awaitable[Any], seconds: float | None) -> Any:
    """Await a call, and cancel it after so many seconds with ``TimeoutError``."""
    async with asyncio.timeout(seconds):
        return await call
