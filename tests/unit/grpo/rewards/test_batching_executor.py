"""``BatchingExecutor`` case by case, on a simulated clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from math import ceil, log2
from typing import Any

import pytest

from rlconform.grpo.rewards.batching_executor import (
    BatchingExecutor,
    ExecutorClosed,
    NoRunnerLeft,
    RequestFailed,
    WrongAnswers,
)
from rlconform.grpo.simulation.loop import simulate

from .scripted_runners import Answer, Call, ScriptedRunner, executor

Outcome = Answer | BaseException


async def ask(opened: BatchingExecutor[int, Answer], request: int) -> Answer:
    return await (await opened.submit(request))


async def ask_all(opened: BatchingExecutor[int, Answer], requests: Sequence[int]) -> list[Outcome]:
    return await asyncio.gather(*(ask(opened, each) for each in requests), return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 13])
@pytest.mark.parametrize("runners", [1, 2, 3])
def test_any_number_of_requests_is_answered(count: int, runners: int) -> None:
    calls: list[Call] = []

    async def run() -> list[Outcome]:
        return await ask_all(
            executor([ScriptedRunner(i, calls) for i in range(runners)]), range(count)
        )

    assert simulate(run()) == [(i, 2 * i) for i in range(count)]
    assert sorted(call.requests for call in calls) == [
        tuple(range(start, min(start + 4, count))) for start in range(0, count, 4)
    ]


def test_a_batch_runs_when_it_is_full_or_its_first_request_has_waited() -> None:
    calls: list[Call] = []

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
    calls: list[Call] = []

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
    calls: list[Call] = []

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


def test_an_error_goes_to_its_own_request() -> None:
    calls: list[Call] = []

    async def run() -> list[Outcome]:
        runner = ScriptedRunner(0, calls, bad=frozenset({5}))
        return await ask_all(executor([runner], size=16), range(16))

    outcomes = simulate(run())
    assert [each for i, each in enumerate(outcomes) if i != 5] == [
        (i, 2 * i) for i in range(16) if i != 5
    ]
    failed = outcomes[5]
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.__cause__, ValueError)
    assert str(failed) == "ValueError: bad: [5]"
    assert len(calls) == 1 + 2 * ceil(log2(16))
    assert [(call.requests[0], len(call.requests)) for call in calls] == [
        (0, 16),
        (0, 8),  # the first half goes first
        (0, 4),
        (4, 4),
        (4, 2),
        (4, 1),
        (5, 1),
        (6, 2),
        (8, 8),
    ]


def test_calls_are_bounded_if_every_request_fails() -> None:
    calls: list[Call] = []

    async def run() -> list[Outcome]:
        runner = ScriptedRunner(0, calls, bad=frozenset(range(13)))
        return await ask_all(executor([runner], size=13), range(13))

    assert all(isinstance(each, RequestFailed) for each in simulate(run()))
    assert len(calls) == 2 * 13 - 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda answers: answers[:-1], "expected 1 answers; got 0"),
        (lambda answers: [*answers, (9, 9)], "expected 1 answers; got 2"),
        (lambda answers: [(9, 9) if a[0] == 2 else a for a in answers], "an answer to 2; got"),
    ],
)
def test_wrong_answers_are_errors(
    change: Callable[[list[Answer]], list[Answer]], said: str
) -> None:
    calls: list[Call] = []

    async def run() -> list[Outcome]:
        return await ask_all(executor([ScriptedRunner(0, calls, change=change)]), range(4))

    refused = [each for each in simulate(run()) if isinstance(each, BaseException)]
    assert refused
    assert all(isinstance(each, RequestFailed) for each in refused)
    assert all(isinstance(each.__cause__, WrongAnswers) for each in refused)
    assert all(said in str(each) for each in refused)


def test_an_answer_is_used_only_if_the_whole_batch_has_the_right_ones() -> None:
    """Two answers that changed places are found, and both requests get their own."""
    calls: list[Call] = []

    def swap(answers: list[Answer]) -> list[Answer]:
        return [answers[1], answers[0], *answers[2:]] if len(answers) > 1 else answers

    async def run() -> list[Outcome]:
        return await ask_all(executor([ScriptedRunner(0, calls, change=swap)]), range(4))

    assert simulate(run()) == [(i, 2 * i) for i in range(4)]


def test_a_cancelled_request_leaves_the_batch() -> None:
    calls: list[Call] = []

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
    calls: list[Call] = []

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
    calls: list[Call] = []

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
    calls: list[Call] = []

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
    calls: list[Call] = []

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
    calls: list[Call] = []

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


def test_the_batches_of_a_lost_runner_go_to_another_one_first() -> None:
    calls: list[Call] = []

    async def run() -> list[Outcome]:
        dying = ScriptedRunner(0, calls, dies_at=0)
        return await ask_all(
            executor([dying, ScriptedRunner(1, calls)], size=2, batches_per_runner=1), range(8)
        )

    assert simulate(run()) == [(i, 2 * i) for i in range(8)]
    assert [(call.runner, call.requests) for call in calls] == [
        (0, (0, 1)),
        (1, (2, 3)),
        (1, (0, 1)),
        (1, (4, 5)),
        (1, (6, 7)),
    ]


def test_without_a_runner_left_everything_fails() -> None:
    calls: list[Call] = []

    async def run() -> list[Outcome]:
        dying = [ScriptedRunner(i, calls, dies_at=0) for i in range(2)]
        opened = executor(dying, size=2, queue=2, batches_per_runner=1)
        outcomes = await ask_all(opened, range(10))
        with pytest.raises(NoRunnerLeft):
            await opened.submit(10)
        await opened.close()
        return outcomes

    assert [type(each) for each in simulate(run())] == [NoRunnerLeft] * 10


def test_a_runner_that_is_cancelled_by_itself_fails_its_requests() -> None:
    async def cancelled(_: Sequence[int]) -> list[Answer]:
        raise asyncio.CancelledError

    async def run() -> list[Outcome]:
        opened = BatchingExecutor[int, Answer](
            [cancelled], max_batch_size=2, max_wait_ms=1, max_queue=8, is_answer=lambda *_: True
        )
        return await ask_all(opened, range(3))

    assert [type(each) for each in simulate(run())] == [RequestFailed] * 3


def test_the_end_of_the_event_loop_cancels_what_runs() -> None:
    answers: list[asyncio.Future[Answer]] = []

    async def run() -> None:
        opened = executor([ScriptedRunner(0, [])], size=1, batches_per_runner=2)
        answers.extend([await opened.submit(i) for i in range(3)])
        await asyncio.sleep(0.5)

    simulate(run())
    assert [answer.cancelled() for answer in answers] == [True] * 3  # runs, is next, is queued


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
