"""``play_executor``: a batching executor on a simulated clock, and the history of what it did.

    clients of a plan ── submit, cancel ──▶ BatchingExecutor ── batches ──▶ ScriptedRunner, each
          │                                                                  one batch at a time
          └──────── times and outcomes ──▶ ExecutorHistory ◀── times of calls ────┘

A request is a number, and its answer the pair (number, 2 * number). The play waits for all clients,
``_PATIENCE_S`` at most: simulated time, so no real time passes. What has no outcome then gets none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field

from rlconform.grpo.rewards.batch_runner import (
    ExecutorClosed,
    NoRunnerLeft,
    RequestFailed,
    RunnerLost,
)
from rlconform.grpo.rewards.batching_executor import BatchingExecutor
from rlconform.grpo.rewards.executor_history import (
    CallEnd,
    ExecutorHistory,
    ExecutorLimits,
    RequestEnd,
    RequestLife,
    RunnerCall,
)
from rlconform.grpo.simulation.loop import simulate

ScriptedAnswer = tuple[int, int]
#: Simulated seconds that the clients of a play get; those of its plan are less than one.
_PATIENCE_S = 1000.0

#: The types of outcomes, from the special to the general.
_ENDS: Sequence[tuple[type[BaseException], RequestEnd]] = (
    (RequestFailed, RequestEnd.FAILED),
    (NoRunnerLeft, RequestEnd.NO_RUNNER),
    (ExecutorClosed, RequestEnd.CLOSED),
    (asyncio.CancelledError, RequestEnd.CANCELLED),
)


def right(answers: list[ScriptedAnswer]) -> Sequence[ScriptedAnswer]:
    """Return the answers of a call as they are."""
    return answers


def short(answers: list[ScriptedAnswer]) -> Sequence[ScriptedAnswer]:
    """Leave the last answer of several out."""
    return answers[:-1] if len(answers) > 1 else answers


def swapped(answers: list[ScriptedAnswer]) -> Sequence[ScriptedAnswer]:
    """Let the first two answers change places."""
    return [*answers[1::-1], *answers[2:]]


@dataclass
class ScriptedRunner:
    """Runs one batch at a time, as an actor does; fails, dies and is slow as a plan says."""

    number: int
    calls: list[RunnerCall]  # of all runners, in the order in which they were made
    seconds: float = 1.0  # of a call
    bad: frozenset[int] = frozenset()  # requests that raise, with their batch
    dies_at: int | None = None  # the call, counted from 0, that it dies in
    change: Callable[[list[ScriptedAnswer]], Sequence[ScriptedAnswer]] = right
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    poison: frozenset[int] = frozenset()  # requests that kill it
    _begun: int = 0
    _dead: bool = False

    async def __call__(self, requests: Sequence[int]) -> Sequence[ScriptedAnswer]:
        """Answer a batch."""
        loop = asyncio.get_running_loop()
        call = RunnerCall(self.number, tuple(requests), loop.time())
        self.calls.append(call)
        async with self._one:
            number, self._begun = self._begun, self._begun + 1
            call.began = loop.time()
            await asyncio.sleep(self.seconds)
            call.ended = loop.time()
            dies = self.dies_at is not None and number >= self.dies_at
            if self._dead or dies or self.poison.intersection(requests):
                self._dead = True
                call.end = CallEnd.LOST
                raise RunnerLost(f"runner {self.number} died")
            if wrong := self.bad.intersection(requests):
                call.end = CallEnd.RAISED
                raise ValueError(f"bad: {sorted(wrong)}")
            answers = [(request, 2 * request) for request in requests]
            given = self.change(list(answers))
            call.end = CallEnd.ANSWERED if list(given) == answers else CallEnd.WRONG
            return given


@dataclass(frozen=True)
class ClientPlan:
    """A client that submits one request."""

    at_ms: int
    cancelled_after_ms: int | None = None
    bad: bool = False
    kills: bool = False  # the runner that runs it


@dataclass(frozen=True)
class RunnerPlan:
    """A runner."""

    seconds: float = 0.003
    dies_at: int | None = None
    change: Callable[[list[ScriptedAnswer]], Sequence[ScriptedAnswer]] = right


@dataclass(frozen=True)
class ExecutorPlan:
    """Everything that happens."""

    clients: Sequence[ClientPlan]
    runners: Sequence[RunnerPlan] = (RunnerPlan(),)
    size: int = 4
    wait_ms: int = 5
    queue: int = 8
    batches_per_runner: int = 2
    closed_at_ms: int | None = None


def play_executor(plan: ExecutorPlan) -> ExecutorHistory:
    """Let a plan happen."""
    return simulate(_ExecutorPlay(plan).run())


class _ExecutorPlay:
    def __init__(self, plan: ExecutorPlan) -> None:
        self._plan = plan
        limits = ExecutorLimits(
            len(plan.runners), plan.size, plan.wait_ms / 1000, plan.queue, plan.batches_per_runner
        )
        self._history = ExecutorHistory(limits)
        bad = frozenset(number for number, client in enumerate(plan.clients) if client.bad)
        poison = frozenset(number for number, client in enumerate(plan.clients) if client.kills)
        self._executor = BatchingExecutor[int, ScriptedAnswer](
            [
                ScriptedRunner(
                    i, self._history.calls, one.seconds, bad, one.dies_at, one.change, poison=poison
                )
                for i, one in enumerate(plan.runners)
            ],
            max_batch_size=plan.size,
            max_wait_ms=plan.wait_ms,
            max_queue=plan.queue,
            is_answer=lambda request, answer: request == answer[0],
            batches_per_runner=plan.batches_per_runner,
        )

    async def run(self) -> ExecutorHistory:
        tasks = [asyncio.create_task(self._client(*each)) for each in enumerate(self._plan.clients)]
        if self._plan.closed_at_ms is not None:
            tasks.append(asyncio.create_task(self._close(self._plan.closed_at_ms / 1000)))
        if tasks:
            await asyncio.wait(tasks, timeout=_PATIENCE_S)
        seen = deepcopy(self._history)  # what the end of the loop adds is not of the play
        for task in tasks:
            task.cancel()
        errors = await asyncio.gather(*tasks, return_exceptions=True)
        unplanned = [one for one in errors if isinstance(one, Exception)]
        if unplanned:
            raise unplanned[0]
        return seen

    async def _client(self, number: int, client: ClientPlan) -> None:
        loop, history = asyncio.get_running_loop(), self._history
        await asyncio.sleep(client.at_ms / 1000)
        life = RequestLife(number, loop.time())
        history.requests.append(life)

        async def ask() -> ScriptedAnswer:
            answer = await self._executor.submit(number)
            life.placed = loop.time()
            return await answer

        def give_up() -> None:
            if life.end is None:
                life.given_up = loop.time()
                task.cancel()

        task = asyncio.create_task(ask())
        if client.cancelled_after_ms is not None:
            loop.call_later(client.cancelled_after_ms / 1000, give_up)
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        life.ended = loop.time()
        if isinstance(outcome, BaseException):
            kinds = (end for kind, end in _ENDS if isinstance(outcome, kind))
            life.end = next(kinds, RequestEnd.OTHER)
        else:
            life.end, life.answer_to = RequestEnd.ANSWER, outcome[0]

    async def _close(self, at: float) -> None:
        await asyncio.sleep(at)
        self._history.closed = asyncio.get_running_loop().time()
        await self._executor.close()
