"""``play_rewards``: rows of several calls through one reward loop, with a scorer of a script.

    caller's thread, as a rollout worker: done(row) ..., wait ─▶ outcomes ┐
                       │                                                  ├─▶ ScoredRow, one each
    RewardLoop's thread ── score ──▶ ScriptedScorer: what it was asked ───┘

The caller waits for the rows of a call, ``_GIVE_UP_S`` at most. A call that is given up leaves its
rows without an outcome; the same rows come again in a second call, as in a rollout worker. Time is
real here, because the loop has a thread of its own; only rows take any, ``timeout_s``, whose scorer
is silent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import nan

from rlconform.grpo.config.rewards import RewardLoopConfig
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.loop import RewardLoop
from rlconform.grpo.rewards.row_history import ScoredRow, ScorerDoes
from rlconform.grpo.rollout.row_rewards import RowRewards
from rlconform.grpo.rollout.turn_loop import RolloutRow
from rlconform.grpo.tasks import PolicyTurn, Problem, Split

#: Seconds that the rows of a call get; and those that a row gets, if the scorer is silent or not.
_GIVE_UP_S, _SHORT_S, _LONG_S = 120.0, 0.05, 60.0
#: The reward of rows without any text.
EMPTY_REWARD = -1.0


@dataclass(frozen=True)
class RewardRowPlan:
    """A row, and what the scorer does for it after some turns of the event loop."""

    does: ScorerDoes = ScorerDoes.REWARDS
    has_text: bool = True
    after_turns: int = 0


@dataclass(frozen=True)
class RewardCallPlan:
    """Rows that are generated together."""

    rows: Sequence[RewardRowPlan]
    split: Split = "train"
    given_up_first: bool = False


@dataclass(frozen=True)
class RewardPlan:
    """Everything that happens."""

    calls: Sequence[RewardCallPlan]
    max_concurrent: int = 256
    #: The scorer answers nothing at all, so each row is late. Beside late rows no other would be
    #: safe from being late too, on a busy machine.
    silent: bool = False

    def call_as_played(self, call: RewardCallPlan) -> RewardCallPlan:
        """Return a call, with rows that all are late if the scorer is silent."""
        if not self.silent:
            return call
        rows = [replace(row, does=ScorerDoes.HANGS) for row in call.rows]
        return replace(call, rows=rows, given_up_first=False)

    @property
    def slots(self) -> int:
        """How many rows are scored at once: at least all those that are given up."""
        given_up = [len(call.rows) for call in self.calls if call.given_up_first]
        return max(self.max_concurrent, *given_up, 1)


class ScriptedScorer(RewardScorer):
    """Does for each row what its plan says, and nothing for rows that are to be given up."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[ScoredRow, RewardRowPlan]] = {}
        self._asked = threading.Semaphore(0)
        self._silent = False

    def expect(self, row: ScoredRow, plan: RewardRowPlan) -> None:
        """Take note of a row."""
        self._rows[row.sample_id] = (row, plan)

    @contextmanager
    def silent_for(self, requests: int) -> Iterator[None]:
        """Answer nothing in the block, and let it end when there were so many requests."""
        self._silent = True
        yield
        for _ in range(requests):
            self._asked.acquire(timeout=_GIVE_UP_S)
        self._silent = False

    async def score(self, request: RewardRequest) -> Reward:
        """Answer as planned."""
        row, plan = self._rows[request.sample_id]
        row.asked.append(request)
        number = len(row.asked)
        if self._silent:
            self._asked.release()
        if self._silent or plan.does is ScorerDoes.HANGS:
            await asyncio.Event().wait()
        for _ in range(plan.after_turns):
            await asyncio.sleep(0)
        if plan.does is ScorerDoes.RAISES:
            raise ValueError("planned")
        reward = Reward(
            "another" if plan.does is ScorerDoes.OTHER_ROW else request.sample_id,
            request.attempt,
            nan if plan.does is ScorerDoes.NOT_FINITE else _value(request.sample_id, number),
            turn_values=(0.5, 0.5) if plan.does is ScorerDoes.MALFORMED else (0.25,),
            extra={f"of {request.sample_id}": number},
        )
        row.given.append(reward)
        return reward


def play_rewards(plan: RewardPlan) -> list[ScoredRow]:
    """Let a plan happen."""
    scorer, played = ScriptedScorer(), list[ScoredRow]()
    options = RewardLoopConfig(
        timeout_s=_SHORT_S if plan.silent else _LONG_S,
        max_concurrent=plan.slots,
        empty_response_reward=EMPTY_REWARD,
    )
    loop = RewardLoop(scorer, options)
    try:
        for number, call in enumerate(plan.calls):
            played += _play_call(loop, scorer, number, plan.call_as_played(call))
    finally:
        loop.close()
    return played


def _play_call(
    loop: RewardLoop, scorer: ScriptedScorer, number: int, call: RewardCallPlan
) -> list[ScoredRow]:
    scored, rows = [], []
    for index, plan in enumerate(call.rows):
        uid = f"{call.split}-{number}-{index // 2}"  # groups of two rows
        problem = Problem(uid, (), str(index), extra_info={"index": index // 2})
        sample_id = f"{uid}_g{index % 2}"
        again = int(call.given_up_first and plan.has_text)
        one = ScoredRow(sample_id, problem, call.split, plan.has_text, plan.does, given_up=again)
        scorer.expect(one, plan)
        scored.append(one)
        turns = [PolicyTurn("7" if plan.has_text else "", ended=True)]
        rows.append(RolloutRow(sample_id, problem, [], turns=turns, done=True))
    if call.given_up_first:
        with RowRewards(loop, call.split) as rewards:
            with scorer.silent_for(sum(plan.has_text for plan in call.rows)):
                _hand_over(rewards, rows)
            aborted = Future[None]()
            aborted.set_result(None)
            rewards.wait(aborted)
    given_up = Future[None]()
    patience = threading.Timer(_GIVE_UP_S, given_up.set_result, [None])
    patience.start()
    with RowRewards(loop, call.split) as rewards:
        _hand_over(rewards, rows)
        rewards.wait(given_up)
    patience.cancel()
    for one, row in zip(scored, rows, strict=True):
        one.outcome = row.outcome
    return scored


def _hand_over(rewards: RowRewards, rows: Sequence[RolloutRow]) -> None:
    """Ask for the rows that have no outcome yet, as a rollout worker does."""
    for row in rows:
        if row.outcome is None:
            rewards.done(row)


def _value(sample_id: str, number: int) -> float:
    """Return a value that no other row has, and no other request of this row."""
    return float(sum(ord(char) * (place + 1) for place, char in enumerate(sample_id)) + number / 8)
