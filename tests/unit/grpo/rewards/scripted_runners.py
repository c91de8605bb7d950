"""Runners of a batching executor that fail, die and are slow as a test says, and note their calls.

A request is a number, and its answer the pair (number, 2 * number).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rlconform.grpo.rewards.batching_executor import BatchingExecutor, RunnerLost

Answer = tuple[int, int]
Outcome = Answer | BaseException


@dataclass
class Call:
    """One call of a runner."""

    runner: int
    requests: tuple[int, ...]
    began: float
    ended: float = float("nan")


@dataclass
class ScriptedRunner:
    """Runs one batch at a time, as an actor does."""

    number: int
    calls: list[Call]  # of all runners, in the order in which they began
    seconds: float = 1.0  # of a call
    bad: frozenset[int] = frozenset()  # requests that raise, with their batch
    dies_at: int | None = None  # the call, counted from 0, that it dies in
    change: Callable[[list[Answer]], Sequence[Answer]] = lambda answers: answers
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: int = 0

    async def __call__(self, requests: Sequence[int]) -> Sequence[Answer]:
        async with self._one:
            number, self._begun = self._begun, self._begun + 1
            call = Call(self.number, tuple(requests), _now())
            self.calls.append(call)
            await asyncio.sleep(self.seconds)
            call.ended = _now()
            if self.dies_at is not None and number >= self.dies_at:
                raise RunnerLost(f"runner {self.number} died")
            if wrong := self.bad.intersection(requests):
                raise ValueError(f"bad: {sorted(wrong)}")
            return self.change([(request, 2 * request) for request in requests])


def executor(
    runners: Sequence[ScriptedRunner],
    *,
    size: int = 4,
    wait_ms: float = 10.0,
    queue: int = 100,
    batches_per_runner: int = 2,
) -> BatchingExecutor[int, Answer]:
    """Open an executor over the runners."""
    return BatchingExecutor(
        runners,
        max_batch_size=size,
        max_wait_ms=wait_ms,
        max_queue=queue,
        is_answer=lambda request, answer: request == answer[0],
        batches_per_runner=batches_per_runner,
    )


def _now() -> float:
    return asyncio.get_running_loop().time()


async def ask(opened: BatchingExecutor[int, Answer], request: int) -> Answer:
    return await (await opened.submit(request))


async def ask_all(opened: BatchingExecutor[int, Answer], requests: Sequence[int]) -> list[Outcome]:
    return await asyncio.gather(*(ask(opened, each) for each in requests), return_exceptions=True)


def now() -> float:
    return asyncio.get_running_loop().time()
