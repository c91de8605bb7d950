"""Calls of the queue that are cancelled or reordered on their way lose no group, and take none."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from rlconform.grpo.queue.queue_actor import CallId, QueueActor
from rlconform.grpo.queue.queue_client import QueueClient
from rlconform.grpo.queue.trajectory_queue import PutOutcome
from rlconform.grpo.simulation.loop import simulate
from rlconform.grpo.simulation.queue_calls import SimulatedCalls

from .test_trajectory_queue import group


@settings(max_examples=100, deadline=None)
@given(
    capacity=st.integers(1, 4),
    consumers=st.integers(1, 3),
    patience=st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, 9.0]), min_size=1, max_size=6),
)
def test_every_group_is_got_once_in_the_order_of_its_producer(
    capacity: int, consumers: int, patience: list[float]
) -> None:
    """Gets are cancelled before they arrive, while they wait, and while their answer comes."""
    each_puts, random = 12, Random(1)

    async def consume(client: QueueClient) -> list[str]:
        got: list[str] = []
        for turn in range(10_000):
            get = asyncio.ensure_future(client.get_batch(2, 1, 0))
            await asyncio.wait([get], timeout=patience[turn % len(patience)] * random.random() * 4)
            if not get.done():
                get.cancel()
                await asyncio.wait([get])
            elif get.result().ended:
                return got
            else:
                got += [each.group_id for each in get.result().groups]
            if turn % 100 == 99:
                patience[0] = 99.0  # in the end a get waits long enough
        raise AssertionError("the end marker never came")

    async def run() -> None:
        calls = SimulatedCalls(QueueActor(capacity, "wait", None), 0.5)

        async def produce(name: str) -> None:
            client = QueueClient(calls, name)
            puts = [client.put(group(f"{name}{number}")) for number in range(each_puts)]
            assert set(await asyncio.gather(*puts)) == {PutOutcome.ACCEPTED}

        consuming = [
            asyncio.ensure_future(consume(QueueClient(calls, f"trainer-{index}")))
            for index in range(consumers)
        ]
        await asyncio.gather(*(produce(name) for name in "ab"))
        owner = QueueClient(calls, "owner")
        while (await owner.statistics()).size:
            await asyncio.sleep(1.0)
        await owner.close()
        got = await asyncio.gather(*consuming)
        left = await owner.get_batch(4 * each_puts, 1, 0)  # back after another had the end
        last = [each.group_id for each in left.groups]
        expected = [f"{name}{number}" for name in "ab" for number in range(each_puts)]
        assert sorted([*last, *(name for names in got for name in names)]) == sorted(expected)
        if consumers == 1:
            for name in "ab":
                assert [one for one in [*got[0], *last] if one[0] == name] == [
                    one for one in expected if one[0] == name
                ]

    simulate(run())


def test_a_cancellation_may_overtake_its_call() -> None:
    async def run() -> None:
        actor = QueueActor(4, "wait", None)
        put, get = CallId("a", "put", 0), CallId("b", "get", 0)
        await actor.cancel(put)
        assert await actor.put(put, group("x")) is PutOutcome.WITHDRAWN
        assert await actor.put(CallId("a", "put", 1), group("y")) is PutOutcome.ACCEPTED
        await actor.cancel(get)
        assert (await actor.get_batch(get, 1, 1, 0, -1)).groups == ()
        batch = await actor.get_batch(CallId("b", "get", 1), 1, 1, 0, -1)
        assert [each.group_id for each in batch.groups] == ["y"]

    asyncio.run(run())


def test_an_answer_that_was_not_read_comes_again_without_a_cancellation() -> None:
    async def run() -> None:
        actor = QueueActor(4, "wait", None)
        for number, name in enumerate("xyz"):
            await actor.put(CallId("a", "put", number), group(name))
        for number, read, expected in ((0, -1, "xy"), (1, -1, "xy"), (2, 1, "z")):
            call = CallId("b", "get", number)
            batch = await actor.get_batch(call, 2, 1, 0, read)
            assert "".join(each.group_id for each in batch.groups) == expected

    asyncio.run(run())
