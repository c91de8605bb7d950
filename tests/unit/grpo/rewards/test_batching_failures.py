"""``BatchingExecutor`` with runners that fail, answer wrongly or are lost; simulated time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil, log2

import pytest

from rlconform.grpo.rewards.batch_runner import (
    NoRunnerLeft,
    RequestFailed,
    RunnerLost,
    WrongAnswers,
)
from rlconform.grpo.rewards.batching_executor import BatchingExecutor
from rlconform.grpo.rewards.executor_history import CallEnd, RunnerCall
from rlconform.grpo.simulation.executor_play import ScriptedAnswer, ScriptedRunner
from rlconform.grpo.simulation.loop import simulate

from .scripted_runners import Outcome, ask_all, executor


def test_an_error_goes_to_its_own_request() -> None:
    calls: list[RunnerCall] = []

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
    calls: list[RunnerCall] = []

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
    change: Callable[[list[ScriptedAnswer]], list[ScriptedAnswer]], said: str
) -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        return await ask_all(executor([ScriptedRunner(0, calls, change=change)]), range(4))

    refused = [each for each in simulate(run()) if isinstance(each, BaseException)]
    assert refused
    assert all(isinstance(each, RequestFailed) for each in refused)
    assert all(isinstance(each.__cause__, WrongAnswers) for each in refused)
    assert all(said in str(each) for each in refused)


def test_an_answer_is_used_only_if_the_whole_batch_has_the_right_ones() -> None:
    """Two answers that changed places are found, and both requests get their own."""
    calls: list[RunnerCall] = []

    def swap(answers: list[ScriptedAnswer]) -> list[ScriptedAnswer]:
        return [answers[1], answers[0], *answers[2:]] if len(answers) > 1 else answers

    async def run() -> list[Outcome]:
        return await ask_all(executor([ScriptedRunner(0, calls, change=swap)]), range(4))

    assert simulate(run()) == [(i, 2 * i) for i in range(4)]


def test_the_batches_of_a_lost_runner_go_to_another_one_first() -> None:
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        dying = ScriptedRunner(0, calls, dies_at=0)
        return await ask_all(
            executor([dying, ScriptedRunner(1, calls)], size=2, batches_per_runner=1), range(8)
        )

    assert simulate(run()) == [(i, 2 * i) for i in range(8)]
    assert [(call.runner, call.requests) for call in calls] == [
        (0, (0, 1)),
        (1, (2, 3)),
        (1, (0,)),  # alone, as one of them may have killed the runner
        (1, (1,)),
        (1, (4, 5)),
        (1, (6, 7)),
    ]


def test_a_request_that_kills_runners_fails_at_the_second_one() -> None:
    """The others are answered by the runner that is left."""
    calls: list[RunnerCall] = []

    async def run() -> list[Outcome]:
        runners = [ScriptedRunner(i, calls, poison=frozenset({1})) for i in range(3)]
        return await ask_all(executor(runners, batches_per_runner=1), range(8))

    outcomes = simulate(run())
    failed = outcomes.pop(1)
    assert isinstance(failed, RequestFailed)
    assert isinstance(failed.__cause__, RunnerLost)
    assert str(failed).startswith("2 runners were lost with it: runner")
    assert outcomes == [(i, 2 * i) for i in range(8) if i != 1]
    assert sum(call.end is CallEnd.LOST for call in calls) == 2


def test_without_a_runner_left_everything_fails() -> None:
    calls: list[RunnerCall] = []

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
    async def cancelled(_: Sequence[int]) -> list[ScriptedAnswer]:
        raise asyncio.CancelledError

    async def run() -> list[Outcome]:
        opened = BatchingExecutor[int, ScriptedAnswer](
            [cancelled], max_batch_size=2, max_wait_ms=1, max_queue=8, is_answer=lambda *_: True
        )
        return await ask_all(opened, range(3))

    assert [type(each) for each in simulate(run())] == [RequestFailed] * 3


def test_the_end_of_the_event_loop_cancels_what_runs() -> None:
    answers: list[asyncio.Future[ScriptedAnswer]] = []

    async def run() -> None:
        opened = executor([ScriptedRunner(0, [])], size=1, batches_per_runner=2)
        answers.extend([await opened.submit(i) for i in range(3)])
        await asyncio.sleep(0.5)

    simulate(run())
    assert [answer.cancelled() for answer in answers] == [True] * 3  # runs, is next, is queued
