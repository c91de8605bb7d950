"""Requests of the batching executor that get no answer, another one, or get it too late."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import Any

from rlconform.grpo.rewards.batch_runner import (
    RequestFailed,
    RunnerLost,
    WrongAnswers,
)
from rlconform.grpo.rewards.batching_executor import A, BatchingExecutor, Q
from rlconform.mutants.async_parts.part_defect import part_defect
from rlconform.mutants.call import State

_NO_OUTCOME = "expected an outcome"


@part_defect(
    "executor_answers", evidence=_NO_OUTCOME, seen="verl reward loop", may="executor_waits"
)
class CancelledRequestSpoilsItsBatch(BatchingExecutor[Q, A]):
    """Resolves no future of a batch of which one was cancelled while it ran."""

    def _resolve(self, part: Any, answers: Sequence[Any]) -> None:
        if not any(pending.answer.done() for pending in part):
            super()._resolve(part, answers)


@part_defect("executor_answers", evidence=_NO_OUTCOME, seen="NeMo-RL#3730")
class PlaceOfACancelledRequestKept(BatchingExecutor[Q, A]):
    """Keeps the place of a queued request that was cancelled, so the queue stays full."""

    def _forget(self, pending: Any) -> None:
        """Do nothing."""


@part_defect("executor_answers", evidence=_NO_OUTCOME, seen="verl drop_last", may="executor_waits")
class LastShortBatchDropped(BatchingExecutor[Q, A]):
    """Drops what is queued when it is closed, unless it makes a full batch."""

    async def close(self) -> None:
        if len(self._queue) < self._size:
            self._queue.clear()
        await super().close()


@part_defect("executor_answers", evidence="expected the answer to request", seen="NeMo-RL#3923")
class AnswersNotMatched(BatchingExecutor[Q, A]):
    """Pairs answers with requests by their position, whatever they are answers to."""

    def _check(self, part: Any, answers: Sequence[Any]) -> None:
        if len(answers) != len(part):
            raise WrongAnswers(f"expected {len(part)} answers; got {len(answers)}")


@part_defect("executor_answers", evidence=_NO_OUTCOME, seen="verl zip", may="executor_waits")
class MissingAnswersZipped(BatchingExecutor[Q, A]):
    """Pairs requests with answers up to the shorter of the two, and says nothing of the rest."""

    def _check(self, part: Any, answers: Sequence[Any]) -> None:
        super()._check(part[: len(answers)], answers)

    def _resolve(self, part: Any, answers: Sequence[Any]) -> None:
        super()._resolve(part[: len(answers)], answers)


@part_defect("executor_answers", evidence="to fail only if it fails alone", seen="verl")
class PoisonFailsItsBatch(BatchingExecutor[Q, A]):
    """Gives the error of a batch to all its requests, not to the one that has caused it."""

    async def _call(self, lane: Any, part: Any) -> BaseException | None:
        error = await super()._call(lane, part)
        if error is not None:
            for pending in part:
                if not pending.answer.done():
                    pending.answer.set_exception(RequestFailed(str(error)))
        return None


@part_defect("executor_answers", evidence=_NO_OUTCOME, seen="slime#2399", may="executor_waits")
class BatchOfALostRunnerForgotten(BatchingExecutor[Q, A]):
    """Takes a runner out that is lost, and its batch with it."""

    def _lose(self, lane: Any, error: RunnerLost, left: list[Any]) -> None:
        super()._lose(lane, error, [] if len(self._lanes) > 1 else left)


@part_defect("executor_answers", evidence="as one is left; got NoRunnerLeft", seen="ray")
class OneLostRunnerEndsAll(BatchingExecutor[Q, A]):
    """Takes all runners for lost when one is."""

    def _lose(self, lane: Any, error: RunnerLost, left: list[Any]) -> None:
        self._lanes = [lane]
        super()._lose(lane, error, left)


@part_defect("executor_answers", evidence=_NO_OUTCOME, seen="AReaL")
class CloseForgetsWhoWaits(BatchingExecutor[Q, A]):
    """Forgets the clients that wait for a place when it is closed."""

    def _refuse_waiting(self) -> None:
        self._waiting.clear()


@part_defect("executor_answers", evidence=_NO_OUTCOME, seen="prime-rl", may="executor_waits")
class LoneRequestNeverTimed(BatchingExecutor[Q, A]):
    """Waits for a full batch without a timer, so the last requests are never run."""

    def _deadline(self, first: Any) -> float:
        return inf

    def _set_timer(self) -> None:
        """Set none."""


@part_defect("executor_batches", evidence="to run once", seen="rllm", may="executor_waits")
class BatchRunTwice(BatchingExecutor[Q, A]):
    """Runs each batch that was answered a second time."""

    async def _call(self, lane: Any, part: Any) -> BaseException | None:
        error = await super()._call(lane, part)
        return error or await super()._call(lane, part)


@part_defect("executor_batches", evidence="which came later", seen="verl", may="executor_waits")
class NewestRequestsFirst(BatchingExecutor[Q, A]):
    """Batches the requests that came last, so the first ones wait as long as others come."""

    def _next_batch(self) -> list[Any]:
        if self._returned:
            return super()._next_batch()
        size = len(batch := super()._next_batch())
        self._queue = dict.fromkeys([*batch, *self._queue])
        newest = [*self._queue][len(self._queue) - size :]
        for pending in newest:
            del self._queue[pending]
        return newest


@part_defect("executor_batches", evidence="expected batches of 1 to", seen="verl max_batch_size")
class BatchOneTooLarge(BatchingExecutor[Q, A]):
    """Takes one request more than a batch may have."""

    def _next_batch(self) -> list[Any]:
        batch = super()._next_batch()
        more = [] if self._returned else [*islice(self._queue, bool(batch))]
        for pending in more:
            del self._queue[pending]
        return batch + more


@part_defect("executor_batches", evidence="or one whose first request has", seen="vLLM")
class NobodyWaitsForABatch(BatchingExecutor[Q, A]):
    """Runs each request at once, so there are never batches."""

    def _deadline(self, first: Any) -> float:
        return -1.0


@part_defect(
    "executor_batches", evidence="batches at runner", seen="SkyRL#1733", may="executor_answers"
)
class BatchesOfARunnerNotCounted(BatchingExecutor[Q, A]):
    """Gives a runner a batch more than agreed."""

    _more = State(set[int])

    def _start(self, lane: Any, batch: Any) -> None:
        super()._start(lane, batch)
        if id(lane) not in self._more:
            self._more.add(id(lane))
            lane.batches -= 1


@part_defect("executor_waits", evidence="requests in the queue; got", seen="AReaL, slime")
class QueueWithoutBound(BatchingExecutor[Q, A]):
    """Gives every request a place at once, so nobody slows its producers down."""

    def _give_places(self) -> None:
        bound, self._max_queue = self._max_queue, 10**6
        super()._give_places()
        self._max_queue = bound


@part_defect("executor_waits", evidence="while no runner did anything", seen="vLLM, AReaL")
class TimerOfTheNewestRequest(BatchingExecutor[Q, A]):
    """Counts ``max_wait_ms`` from the last request of a batch, so each arrival puts it off."""

    def _deadline(self, first: Any) -> float:
        newest = max((one.arrived for one in self._queue), default=first.arrived)
        return float(newest + self._wait_s - asyncio.get_running_loop().time())

    def _set_timer(self) -> None:
        super()._set_timer()
        if self._timer is not None and self._queue:
            self._timer.cancel()
            loop = asyncio.get_running_loop()
            newest = max(one.arrived for one in self._queue)
            self._timer = loop.call_at(newest + self._wait_s, self._pump)


@part_defect("executor_batches", evidence="runners were lost with it; got 3", seen="ray, verl")
class PoisonKillsEveryRunner(BatchingExecutor[Q, A]):
    """Gives a request that has killed a runner to the next one, as often as there is one."""

    def _blame(self, part: Any, error: RunnerLost) -> None:
        for pending in part:
            pending.losses = 0
        super()._blame(part, error)
