"""The trajectory queue as a real Ray actor: waiting, closing, cancelled calls, deaths."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TypeVar

import pytest
import ray
from ray import cloudpickle

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.contract import KVBatchMeta
from rlconform.grpo.queue.queue_client import (
    QueueActorCalls,
    QueueClient,
    QueueClosed,
    QueueLost,
)
from rlconform.grpo.queue.trajectory_queue import PutOutcome, QueueBatch, QueuedGroup
from rlconform.grpo.replay.errors import DuplicateGroup
from rlconform.grpo.replay.slots import GroupRecord

pytestmark = [pytest.mark.timeout(180), pytest.mark.smoke]

T = TypeVar("T")
SOON = 60.0  # seconds; much longer than a call takes on a busy machine
START_S = 120.0

# Ray's processes can't import this module, so its classes are sent whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture(scope="module", autouse=True)
def ray_is_running() -> Iterator[None]:
    with ensure_ray():
        yield


@pytest.fixture
def start() -> Callable[..., QueueActorCalls]:
    """Start a queue: capacity, what a full one does, bound."""
    return lambda capacity=4, on_full="wait", bound=None: QueueActorCalls.start(
        capacity, on_full, bound, START_S
    )


def group(name: str, start: int = 0) -> QueuedGroup:
    meta = KVBatchMeta("train", None, [f"{name}_g0"])
    return QueuedGroup(name, start, GroupRecord(meta, (), start))


def names(*batches: QueueBatch) -> list[str]:
    return [each.group_id for batch in batches for each in batch.groups]


async def soon(awaitable: Awaitable[T]) -> T:
    async with asyncio.timeout(SOON):
        return await awaitable


async def waits(client: QueueClient, *, puts: int = 0, gets: int = 0) -> None:
    """Return once that many calls wait in the queue."""
    async with asyncio.timeout(SOON):
        while True:
            counts = await client.statistics()
            if (counts.waiting_puts, counts.waiting_gets) == (puts, gets):
                return


def test_closing_wakes_everybody(start: Callable[..., QueueActorCalls]) -> None:
    async def putters() -> None:
        calls = start(1)
        client = QueueClient(calls, "rollouter")
        assert await client.put(group("a")) is PutOutcome.ACCEPTED
        waiting = [asyncio.ensure_future(QueueClient(calls, one).put(group(one))) for one in "bc"]
        await waits(client, puts=2)
        await client.close()
        errors = await soon(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(error) for error in errors] == [QueueClosed, QueueClosed]
        assert names(await client.get(0)) == ["a"], "what it had accepted is left"
        assert (await client.get(0)).ended

    async def getters() -> None:
        calls = start(4)
        clients = [QueueClient(calls, f"trainer-{i}") for i in range(3)]
        await clients[0].put(group("a"))
        waiting = [asyncio.ensure_future(each.get_batch(2, 2, 0)) for each in clients]
        await waits(clients[0], gets=3)
        await clients[0].close()
        batches = await soon(asyncio.gather(*waiting))
        assert names(*batches) == ["a"]
        assert sorted(batch.ended for batch in batches) == [False, True, True]
        assert await soon(clients[0].drops(0)) == ()

    asyncio.run(putters())
    asyncio.run(getters())


def test_its_death_ends_every_call_that_waits(start: Callable[..., QueueActorCalls]) -> None:
    async def run() -> None:
        calls = start(1)
        client = QueueClient(calls, "rollouter")
        await client.put(group("a"))
        waiting = [
            asyncio.ensure_future(client.put(group("b"))),
            asyncio.ensure_future(client.drops(0)),
        ]
        await waits(client, puts=1)
        ray.kill(calls.actor)
        killed = time.monotonic()
        errors = await soon(asyncio.gather(*waiting, return_exceptions=True))
        assert [type(error) for error in errors] == [QueueLost, QueueLost]
        assert time.monotonic() - killed < SOON
        with pytest.raises(QueueLost, match="has died"):
            await soon(client.get(0))

    asyncio.run(run())


def test_errors_and_refusals_reach_the_caller(start: Callable[..., QueueActorCalls]) -> None:
    async def run() -> None:
        client = QueueClient(start(1, "refuse", 1), "rollouter")
        await client.advance(3)
        assert await client.put(group("old", 1)) is PutOutcome.STALE
        assert await client.put(group("a", 2)) is PutOutcome.ACCEPTED
        with pytest.raises(DuplicateGroup):
            await client.put(group("a", 2))
        assert await client.put(group("b", 3)) is PutOutcome.FULL
        drops = asyncio.ensure_future(client.drops(0))
        await client.advance(4)
        assert [drop.group_id for drop in await soon(drops)] == ["a"]
        with pytest.raises(ValueError, match="within the capacity 1"):
            await client.get_batch(2, 2, 4)

    asyncio.run(run())


def test_several_producers_and_consumers_lose_nothing_when_gets_are_cancelled(
    start: Callable[..., QueueActorCalls],
) -> None:
    each_puts, random = 20, Random(0)

    async def produce(client: QueueClient, name: str) -> None:
        for number in range(each_puts):
            assert await client.put(group(f"{name}{number}")) is PutOutcome.ACCEPTED

    async def consume(client: QueueClient) -> list[str]:
        got: list[str] = []
        while True:
            get = asyncio.ensure_future(client.get_batch(3, 1, 0))
            await asyncio.wait([get], timeout=random.choice([0.0, 0.01, None]))
            if not get.done():
                get.cancel()
                await asyncio.wait([get])
                continue
            if get.result().ended:
                return got
            got += names(get.result())

    async def run() -> None:
        calls = start(5)
        consumers = [
            asyncio.ensure_future(consume(QueueClient(calls, f"trainer-{i}"))) for i in range(2)
        ]
        await soon(asyncio.gather(*(produce(QueueClient(calls, name), name) for name in "abc")))
        owner = QueueClient(calls, "owner")
        async with asyncio.timeout(SOON):
            while (await owner.statistics()).size:
                await asyncio.sleep(0.01)
        await owner.close()
        got = [name for names_ in await soon(asyncio.gather(*consumers)) for name in names_]
        left = await owner.get_batch(3 * each_puts, 1, 0)  # given back when others had the end
        expected = [f"{name}{number}" for name in "abc" for number in range(each_puts)]
        assert sorted([*got, *names(left)]) == sorted(expected)
        counts = await owner.statistics()
        assert counts.accepted == counts.got == len(expected)

    asyncio.run(run())


class Consumer:
    """A process that takes a batch, and never comes for another."""

    def __init__(self, calls: QueueActorCalls) -> None:
        self._client = QueueClient(calls, "lost")

    async def take(self) -> list[str]:
        return names(await self._client.get_batch(2, 2, 0))


def test_the_batch_of_a_consumer_that_died_goes_back(
    start: Callable[..., QueueActorCalls],
) -> None:
    async def run() -> None:
        calls = start(4)
        client = QueueClient(calls, "trainer")
        for name in "abc":
            await client.put(group(name))
        consumer = ray.remote(Consumer).options(num_cpus=0).remote(calls)
        assert ray.get(consumer.take.remote(), timeout=60) == ["a", "b"]
        ray.kill(consumer)
        await client.forget("lost")
        assert names(await client.get_batch(4, 3, 0)) == ["a", "b", "c"]

    asyncio.run(run())
