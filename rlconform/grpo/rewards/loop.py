"""``RewardLoop``: asks the scorer for rewards, many at once, in an event loop of its own.

    thread that generates ── submit(request) ──▶ loop's thread: a slot ─▶ scorer.score ─▶ checked
                          ◀── future, done at once or in ``timeout_s`` ─────────────────┘
    thread that generates ── goes on; waits for its rows' futures before the put

Who waits: a request for one of ``max_concurrent`` slots, then for the scorer, ``timeout_s`` at
most. Nothing waits for a scorer that is late: its answer is dropped, and the row has failed. The
loop outlives what a scorer raises, ``SystemExit`` included. ``WorkerLost`` is not the failure of a
row: no other row can be scored either, so it is raised where the row is waited for.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.config.rewards import RewardLoopConfig
from rlconform.grpo.failures import RewardFailure, WorkerLost
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.outcome import FailedReward, RewardOutcome, checked
from rlconform.grpo.rewards.task_rule import TaskRule, components_of

#: Seconds that open calls of the scorer, and then the scorer's ``close``, get to end.
_CLOSE_S = 5.0


class RewardLoop:
    """Scores rows with one scorer; ``submit`` and ``close`` are safe for several threads."""

    def __init__(self, scorer: RewardScorer, options: RewardLoopConfig) -> None:
        self.options = options
        self._scorer = scorer
        self._slots = asyncio.Semaphore(options.max_concurrent)
        self._loop = asyncio.new_event_loop()
        self._closing = threading.Lock()
        self._closed = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="rewards", daemon=True)
        self._thread.start()

    def submit(self, request: RewardRequest) -> Future[RewardOutcome]:
        """Ask for a reward; the result is there in ``timeout_s`` after its turn has come.

        To cancel the future gives the row up: an answer to it is dropped.
        """
        return asyncio.run_coroutine_threadsafe(self._outcome(request), self._loop)

    def without_text(self, request: RewardRequest) -> Reward:
        """Return the reward of a row without any text, for which the scorer is not asked.

        It is ``empty_response_reward``; a task's rule has already named its components.
        """
        by_rule = isinstance(self._scorer, TaskRule)
        components = components_of(request.environment) if by_rule else {}
        value = self.options.empty_response_reward
        return Reward(request.sample_id, request.attempt, value, components)

    def close(self) -> None:
        """Give open rows up, close the scorer, and end the thread. Idempotent."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        ending = asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        with suppress(TimeoutError):  # a coroutine of the scorer's that blocks the loop for ever
            ending.result(3 * _CLOSE_S)
        self._stopped = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._stopped:
            # Asyncio lets these two through, after it has given them to the task.
            with suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        self._loop.close()

    async def _end(self) -> None:
        rows = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rows:
            task.cancel()
        if rows:
            await asyncio.wait(rows, timeout=_CLOSE_S)
        await asyncio.wait_for(self._scorer.close(), _CLOSE_S)

    async def _outcome(self, request: RewardRequest) -> RewardOutcome:
        async with self._slots:
            scoring = asyncio.ensure_future(self._scorer.score(request))
            scoring.add_done_callback(_take_note)
            try:
                done, _ = await asyncio.wait([scoring], timeout=self.options.timeout_s)
            finally:
                scoring.cancel()  # if it is late, or its row is given up
        if not done:
            return FailedReward(
                RewardFailureCause.TIMEOUT,
                f"{request.sample_id!r} has no reward after {self.options.timeout_s:g} s "
                "(reward_loop.timeout_s)",
            )
        return _outcome_of(scoring, request)


def _outcome_of(scoring: asyncio.Future[Reward], request: RewardRequest) -> RewardOutcome:
    if scoring.cancelled():
        return FailedReward(RewardFailureCause.RAISED, "the scorer cancelled its own call")
    error = scoring.exception()
    if isinstance(error, WorkerLost):
        raise error
    if error is not None:
        return FailedReward.of(error)
    try:
        return checked(scoring.result(), request)
    except RewardFailure as failure:
        return FailedReward.of(failure)


def _take_note(scoring: asyncio.Future[Reward]) -> None:
    """Retrieve the error of a call that nobody waits for any more, so that asyncio is silent."""
    if not scoring.cancelled():
        scoring.exception()
