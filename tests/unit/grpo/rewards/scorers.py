"""Requests and scorers for the tests of rewards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rlconform.grpo.config.rewards import RewardLoopConfig
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.loop import RewardLoop
from rlconform.grpo.tasks import PolicyTurn, Problem, Split

#: Seconds in which something that is not late must happen, also on a busy machine.
SOON_S = 60.0


def request(
    sample_id: str = "p_g0", attempt: int = 0, *texts: str, split: Split = "train", **problem: Any
) -> RewardRequest:
    """A finished row with these turns, by default one."""
    messages = ({"role": "user", "content": "3+4"},)
    of_row = Problem(sample_id.rpartition("_g")[0], messages, "7", **problem)
    turns = tuple(PolicyTurn(text, ended=True) for text in texts or ("7",))
    return RewardRequest(sample_id, attempt, of_row, turns, split)


class Answers(RewardScorer):
    """Gives the answer that ``answer`` makes of a request, and notes what it was asked."""

    def __init__(self, answer: Callable[[RewardRequest], Any]) -> None:
        self._answer = answer
        self.asked: list[RewardRequest] = []
        self.closed = 0

    async def score(self, request: RewardRequest) -> Reward:
        self.asked.append(request)
        answer: Reward = self._answer(request)
        return answer

    async def close(self) -> None:
        self.closed += 1


def reward(of: RewardRequest, value: float = 1.0, **parts: Any) -> Reward:
    """The right answer to a request."""
    return Reward(of.sample_id, of.attempt, value, **parts)


@contextmanager
def opened(scorer: RewardScorer, **options: Any) -> Iterator[RewardLoop]:
    """A loop, closed in the end."""
    loop = RewardLoop(scorer, RewardLoopConfig(**options))
    try:
        yield loop
    finally:
        loop.close()


class Gate:
    """A place where calls wait until it is opened; ``reached`` counts those that have come."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self._changed = threading.Condition()
        self.reached = 0

    def pass_through(self) -> None:
        """Wait for the gate; an error if nobody opens it."""
        with self._changed:
            self.reached += 1
            self._changed.notify_all()
        assert self._open.wait(SOON_S), "the gate was never opened"

    def wait_for(self, calls: int) -> None:
        """Wait until so many calls have come."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.reached >= calls, SOON_S), self.reached

    def open(self) -> None:
        """Let all through, now and later."""
        self._open.set()
