"""``BatchingExecutor`` case by case, on a simulated clock."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from rlconform.grpo.rewards.batch_runner import ExecutorClosed, RequestFailed
from rlconform.grpo.rewards.executor_history import RunnerCall
from rlconform.grpo.simulation.executor_play import ScriptedRunner
from rlconform.grpo.simulation.loop import simulate

from .scripted_runners import Outcome, ask, ask_all, executor, now


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("runners", [1, 2, 3])
def test_any_number_of_requests_is_answered(count: int, runners: int) -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        return await ask_all(
            executor([ScriptedRunner(i, calls) for i in range(runners)]), range(count)
        )

    assert simulate(run()) == [(i, 2 * i) for i in range(count)]
    assert sorted(call.requests for call in calls) == [
        tuple(range(start, min(start + 4, count))) for start in range(0, count, 4)
    ]


def test_a_batch_runs_when_it_is_full_or_its_first_request_has_waited() -> None:
    calls: list[RunnerCall] = []

    async def run() -> None:
        opened = executor([ScriptedRunner(0, calls, seconds=0.001)], size=3)
        early = [asyncio.create_task(ask(opened, i)) for i in (0, 1)]
        await asyncio.sleep(0.004)
        late = asyncio.create_task(ask(opened, 2))  # fills the batch
        await asyncio.sleep(1)
        lonely = asyncio.create_task(ask(opened, 3))
        await asyncio.sleep(0.006)
        second = asyncio.create_task(ask(opened, 4))
        await asyncio.gather(*early, late, lonely, second)

    simulate(run())
    assert [(call.requests, call.began) for call in calls] == [
        ((0, 1, 2), pytest.approx(0.004)),
        ((3, 4), pytest.approx(1.004 + 0.010)),
    ]


def test_requests_gather_while_all_runners_are_busy() -> None:
    calls: list[RunnerCall] = []

    async def run() -> None:
        opened = executor([ScriptedRunner(0, calls)], batches_per_runner=1)
        tasks = []
        for i in range(4):
            tasks.append(asyncio.create_task(ask(opened, i)))
            await asyncio.sleep(0.1)  # each could have a batch of its own
        await asyncio.gather(*tasks)

    simulate(run())
    assert [call.requests for call in calls] == [(0,), (1, 2, 3)]


def test_the_runner_with_the_fewest_requests_takes_the_next_batch() -> None:
    calls: list[RunnerCall] = []

    async def run() -> None:
        slow, fast = ScriptedRunner(0, calls, seconds=10.0), ScriptedRunner(1, calls, seconds=1.0)
        opened = executor([slow, fast], size=2, wait_ms=1e4)
        tasks = []
        for i in range(8):
            tasks.append(asyncio.create_task(ask(opened, i)))
            await asyncio.sleep(0.6)  # a batch each 1.2 s
        await asyncio.gather(*tasks)

    simulate(run())
    assert [call.runner for call in calls] == [0, 1, 1, 1]


def test_a_cancelled_request_leaves_the_batch() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        opened = executor([ScriptedRunner(0, calls)], size=3)
        tasks = [asyncio.create_task(ask(opened, i)) for i in range(2)]
        await asyncio.sleep(0.005)
        tasks[0].cancel()
        # The batch isn't full with these, and now waits for request 1's sake.
        tasks += [asyncio.create_task(ask(opened, 2))]
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, *answered = simulate(run())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert answered == [(1, 2), (2, 4)]
    assert [(call.requests, call.began) for call in calls] == [((1, 2), pytest.approx(0.010))]


def test_the_answer_of_a_running_cancelled_request_is_ignored() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        opened = executor([ScriptedRunner(0, calls)], size=2)
        tasks = [asyncio.create_task(ask(opened, i)) for i in range(2)]
        await asyncio.sleep(0.5)
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, answered = simulate(run())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert answered == (1, 2)


def test_a_cancelled_request_is_not_in_a_later_half_of_its_batch() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        opened = executor([ScriptedRunner(0, calls, bad=frozenset({3}))])
        tasks = [asyncio.create_task(ask(opened, i)) for i in range(4)]
        await asyncio.sleep(1.5)  # the batch has failed, and its first half runs
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = simulate(run())
    assert outcomes[:2] == [(0, 0), (1, 2)]
    assert [type(each) for each in outcomes[2:]] == [asyncio.CancelledError, RequestFailed]
    assert [call.requests for call in calls] == [(0, 1, 2, 3), (0, 1), (3,)]


def test_a_cancelled_request_frees_its_place_in_the_queue() -> None:
    async def run() -> float:
        runner = ScriptedRunner(0, [], seconds=10.0)
        opened = executor([runner], size=1, queue=1, batches_per_runner=1)
        await opened.submit(0)  # runs
        queued = await opened.submit(1)
        waiting = asyncio.create_task(opened.submit(2))
        await asyncio.sleep(1)
        queued.cancel()
        await waiting
        return now()

    assert simulate(run()) == pytest.approx(1.0)


def test_submit_waits_while_the_queue_is_full() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[float]:
        opened = executor(
            [ScriptedRunner(0, calls)], size=2, queue=2, wait_ms=0, batches_per_runner=1
        )
        placed = []
        for i in range(8):
            await opened.submit(i)
            placed.append(now())
        return placed

    # The first batch runs at once, alone; two requests wait, and each full batch frees two places.
    assert simulate(run()) == pytest.approx([0, 0, 0, 1, 1, 2, 2, 3])


def test_a_request_that_waited_for_a_place_can_be_cancelled() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        opened = executor([ScriptedRunner(0, calls)], size=1, queue=1, batches_per_runner=1)
        tasks = [asyncio.create_task(ask(opened, i)) for i in range(4)]
        await asyncio.sleep(0.5)
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = simulate(run())
    assert isinstance(outcomes.pop(2), asyncio.CancelledError)
    assert outcomes == [(0, 0), (1, 2), (3, 6)]
    assert [call.requests for call in calls] == [(0,), (1,), (3,)]


def test_close_answers_what_is_queued_and_refuses_the_rest() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        opened = executor(
            [ScriptedRunner(0, calls)], size=2, queue=3, wait_ms=1e6, batches_per_runner=1
        )
        tasks = [asyncio.create_task(ask(opened, i)) for i in range(7)]
        await asyncio.sleep(0.5)  # 0 and 1 run, three are queued, two wait for a place
        await opened.close()
        await opened.close()
        assert now() == pytest.approx(3.0)  # nothing waits for ``max_wait_ms``
        with pytest.raises(ExecutorClosed, match="is closed"):
            await opened.submit(9)
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = simulate(run())
    assert outcomes[:5] == [(i, 2 * i) for i in range(5)]
    assert all(isinstance(each, ExecutorClosed) for each in outcomes[5:])
    assert [call.requests for call in calls] == [(0, 1), (2, 3), (4,)]


@pytest.mark.parametrize("sizes", [{"size": 0}, {"queue": 0}, {"batches_per_runner": 0}])
def test_sizes_below_one_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected runners and sizes of at least 1"):
        executor([ScriptedRunner(0, [])], **sizes)
    with pytest.raises(ValueError, match="got 0 runners"):
        executor([])


def test_the_simulated_clock_finds_a_future_that_nobody_resolves() -> None:
    """Without this, a lost request could make the tests above wait for real time instead."""

    async def forgotten() -> None:
        await asyncio.get_running_loop().create_future()

    waits: Coroutine[Any, Any, None] = forgotten()
    with pytest.raises(AssertionError, match="every coroutine waits"):
        simulate(waits)
