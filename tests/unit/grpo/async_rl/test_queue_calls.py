"""Calls of the queue that are cancelled or reordered on their way lose no group, and take none."""

from __future__ import annotations

import asyncio

from hypothesis import event, given, settings

from rlconform.grpo.queue.queue_actor import CallId, QueueActor
from rlconform.grpo.queue.queue_history import GetLife, PutLife, QueueHistory, QueueLimits
from rlconform.grpo.queue.queue_judge import ENDS, GROUPS, judge_queue
from rlconform.grpo.queue.trajectory_queue import PutOutcome
from rlconform.grpo.simulation.queue_play import (
    GetPlan,
    PutPlan,
    QueuePlan,
    play_queue,
    queued,
)
from rlconform.selftest.part_plans import queue_plans


@settings(max_examples=300, deadline=None)
@given(queue_plans())
def test_no_group_is_lost_or_got_twice_whatever_calls_overtake(plan: QueuePlan) -> None:
    """Calls are cancelled before they arrive, while they wait, and while their answer comes.

    Defects that the judge must find are in ``rlconform.mutants.async_parts``.
    """
    history = play_queue(plan)
    for put in history.puts:
        event(f"put {put.outcome}")
    assert judge_queue(history) == []
    assert history.closed is not None


def test_every_group_is_got_once_in_the_order_of_its_producer() -> None:
    """All groups come, though many gets are cancelled."""
    gets = [GetPlan(0.0, 2, 1, patience) for patience in (0.0, 0.005, 0.02, 0.3) * 5]
    plan = QueuePlan([[PutPlan()] * 12] * 2, [gets, gets])
    history = play_queue(plan)
    assert judge_queue(history) == []
    groups = sorted(group for get in history.gets for group in get.groups)
    assert groups == sorted(f"{name}{number}" for name in "ab" for number in range(12))
    assert history.gave_back


def test_a_lost_group_and_a_waiting_get_are_found() -> None:
    limits = QueueLimits(2, "wait", None, 0.1)
    lost = PutLife("a", "a0", 0, 0.0, 0.1, PutOutcome.ACCEPTED)
    waits = GetLife("t", 1, 1, 0, 0.0)
    history = QueueHistory(limits, [lost], [waits], closed=9.0)
    assert {finding.rule: finding.proof for finding in judge_queue(history)} == {
        GROUPS: (lost,),
        ENDS: (waits,),
    }


def test_a_cancellation_may_overtake_its_call() -> None:
    async def run() -> None:
        actor = QueueActor(4, "wait", None)
        put, get = CallId("a", "put", 0), CallId("b", "get", 0)
        await actor.cancel(put)
        assert await actor.put(put, queued("x")) is PutOutcome.WITHDRAWN
        assert await actor.put(CallId("a", "put", 1), queued("y")) is PutOutcome.ACCEPTED
        await actor.cancel(get)
        assert (await actor.get_batch(get, 1, 1, 0, -1)).groups == ()
        batch = await actor.get_batch(CallId("b", "get", 1), 1, 1, 0, -1)
        assert [each.group_id for each in batch.groups] == ["y"]

    asyncio.run(run())


def test_an_answer_that_was_not_read_comes_again_without_a_cancellation() -> None:
    async def run() -> None:
        actor = QueueActor(4, "wait", None)
        for number, name in enumerate("xyz"):
            await actor.put(CallId("a", "put", number), queued(name))
        for number, read, expected in ((0, -1, "xy"), (1, -1, "xy"), (2, 1, "z")):
            call = CallId("b", "get", number)
            batch = await actor.get_batch(call, 2, 1, 0, read)
            assert "".join(each.group_id for each in batch.groups) == expected

    asyncio.run(run())
