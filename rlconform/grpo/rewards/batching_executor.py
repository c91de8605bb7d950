"""``BatchingExecutor``: puts single requests together to batches, for one or several runners.

    client ── submit ──▶ queue ── oldest first ──▶ batch ──▶ the runner with the fewest requests
      │ waits while        │ waits until the batch is full     │ runs at most ``batches_per_runner``
      │ the queue is full  │ or its first request has waited   │ batches, one after the other
      ▼                    │ ``max_wait_ms``, and for a runner ▼
    future ◀── the request's own answer or error ── answers, checked for number and identity

Nobody waits for a batch to be full longer than that, so any number of requests is answered, and the
number of runners needn't divide it. Every future of ``submit`` gets a result or an exception, or is
cancelled by its client. Everything happens in one event loop, between two awaits, so there are no
locks. ``_pump`` decides what runs next; each change of the state calls it.

A batch that raises is split in halves until the culprit is alone, whose future gets the error. The
depth is at most ceil(log2 n) after the first call; one culprit among n requests takes at most
1 + 2 ceil(log2 n) calls, and the most, if every request fails, is 2n - 1. A wrong number of answers
or an answer to another request is an error of the batch too: none of its answers is used.

A request may also be what kills a runner. So the requests of a call in which one was lost run again
first, each alone on a runner that has nothing else, before any other batch begins; one in whose
calls two were lost fails. A request therefore costs two runners at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, TypeVar

from rlconform.grpo.rewards.batch_runner import (
    BatchingError,
    BatchRunner,
    ExecutorClosed,
    NoRunnerLeft,
    RequestFailed,
    RunnerLost,
    WrongAnswers,
)

#: Runners that may be lost in calls of one request.
MOST_LOSSES = 2

Q = TypeVar("Q")
A = TypeVar("A")


@dataclass(eq=False)
class _Pending(Generic[Q, A]):
    request: Q
    arrived: float
    placed: asyncio.Future[None]  # done when the request has a place in the queue
    answer: asyncio.Future[A]
    losses: int = 0  # of runners that had it


@dataclass(eq=False)
class _Lane(Generic[Q, A]):
    """A runner and what it has to do."""

    run: BatchRunner[Q, A]
    batches: int = 0
    requests: int = 0
    alone: bool = False  # whether it runs a request alone that may have killed another runner


class BatchingExecutor(Generic[Q, A]):
    """Batches the requests of any number of clients of one event loop.

    ``max_queue`` requests may wait for a batch; the clients of further ones wait in ``submit``.
    ``is_answer(request, answer)`` tells whether an answer belongs to the request. Requests enter
    batches in the order of their ``submit``.

    A runner that raises ``RunnerLost`` gets no further batch, and what it had not answered is given
    to others first. Without a runner left everything fails with ``NoRunnerLeft``.
    """

    def __init__(
        self,
        runners: Sequence[BatchRunner[Q, A]],
        *,
        max_batch_size: int,
        max_wait_ms: float,
        max_queue: int,
        is_answer: Callable[[Q, A], bool],
        batches_per_runner: int = 2,
    ) -> None:
        if not runners or min(max_batch_size, max_queue, batches_per_runner) < 1:
            raise ValueError(
                f"expected runners and sizes of at least 1; got {len(runners)} runners, "
                f"max_batch_size={max_batch_size}, max_queue={max_queue}, "
                f"batches_per_runner={batches_per_runner}"
            )
        self._lanes = [_Lane(runner) for runner in runners]
        self._size, self._max_queue = min(max_batch_size, max_queue), max_queue
        self._wait_s = max_wait_ms / 1000
        self._is_answer, self._batches_per_runner = is_answer, batches_per_runner
        self._waiting: dict[_Pending[Q, A], None] = {}  # for a place; an ordered set
        self._queue: dict[_Pending[Q, A], None] = {}  # an ordered set
        self._returned: deque[list[_Pending[Q, A]]] = deque()  # of runners that were lost, not run
        self._suspects: deque[_Pending[Q, A]] = deque()  # of calls in which a runner was lost
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    async def submit(self, request: Q) -> asyncio.Future[A]:
        """Wait for a place in the queue, and return the future of the answer.

        Cancelling the future, or the task that awaits it, takes the request out of the queue; if a
        runner has it already, the answer is ignored. The future raises ``RequestFailed``.

        Raises:
            ExecutorClosed: ``close`` was called before there was a place.
            NoRunnerLeft: All runners are lost; the future raises it too.
        """
        if self._closed or not self._lanes:
            raise self._refusal()
        loop = asyncio.get_running_loop()
        pending = _Pending[Q, A](request, loop.time(), loop.create_future(), loop.create_future())
        pending.answer.add_done_callback(lambda _: self._forget(pending))
        self._waiting[pending] = None
        self._pump()
        try:
            await pending.placed
        except (asyncio.CancelledError, BatchingError):
            pending.answer.cancel()
            raise
        return pending.answer

    async def close(self) -> None:
        """Run what is queued, at once, and wait until it is answered; refuse the rest. Idempotent.

        Requests that wait for a place raise ``ExecutorClosed``, as later ones do.
        """
        self._closed = True
        self._refuse_waiting()
        self._pump()
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _pump(self) -> None:
        """Give places and start batches as long as possible, and set the timer for the next one."""
        self._give_places()
        self._start_suspects()
        while (lane := self._free_lane()) is not None and (batch := self._next_batch()):
            self._start(lane, batch)
            self._give_places()
        self._set_timer()

    def _start_suspects(self) -> None:
        """Give each request that may have killed a runner to one that has nothing else."""
        self._suspects = deque(_unanswered(self._suspects))
        for lane in self._lanes:
            if self._suspects and not lane.batches:
                lane.alone = True
                self._start(lane, [self._suspects.popleft()])

    def _give_places(self) -> None:
        while self._waiting and len(self._queue) < self._max_queue:
            pending = next(iter(self._waiting))
            del self._waiting[pending]
            if not pending.placed.done():  # its client was not cancelled
                pending.placed.set_result(None)
                self._queue[pending] = None

    def _free_lane(self) -> _Lane[Q, A] | None:
        """Return the runner with the fewest requests among those that may have another batch.

        While requests wait to be run alone there is none, so that runners get idle for them.
        """
        if self._suspects:
            return None
        most = self._batches_per_runner
        free = [lane for lane in self._lanes if lane.batches < most and not lane.alone]
        return min(free, key=lambda lane: lane.requests, default=None)

    def _next_batch(self) -> list[_Pending[Q, A]]:
        """Take the batch that may run now, [] if there is none."""
        while self._returned:
            if batch := list(_unanswered(self._returned.popleft())):
                return batch
        batch = list(islice(_unanswered(self._queue), self._size))
        if batch and (len(batch) == self._size or self._closed or self._deadline(batch[0]) <= 0):
            for pending in batch:
                del self._queue[pending]
            return batch
        return []

    def _deadline(self, first: _Pending[Q, A]) -> float:
        """Return the seconds until a batch that begins with ``first`` runs, full or not."""
        return first.arrived + self._wait_s - asyncio.get_running_loop().time()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        first = next(_unanswered(self._queue), None)
        if first is not None and self._free_lane() is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(first.arrived + self._wait_s, self._pump)

    def _start(self, lane: _Lane[Q, A], batch: list[_Pending[Q, A]]) -> None:
        lane.batches += 1
        lane.requests += len(batch)
        task = asyncio.get_running_loop().create_task(self._run(lane, batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, lane: _Lane[Q, A], batch: list[_Pending[Q, A]]) -> None:
        """Answer a batch, in parts after an error."""
        parts = deque([batch])
        try:
            while parts:
                part = list(_unanswered(parts[0]))
                error = await self._call(lane, part) if part else None
                parts.popleft()
                if error is not None and len(part) == 1:
                    failed = RequestFailed(f"{type(error).__name__}: {error}")
                    _fail(part, failed, error)
                elif error is not None:
                    middle = (len(part) + 1) // 2
                    parts.extendleft((part[middle:], part[:middle]))
        except RunnerLost as error:
            run = parts.popleft()
            self._lose(lane, error, [pending for part in parts for pending in part])
            self._blame(run, error)
        except asyncio.CancelledError:  # the event loop ends
            self._abandon(batch)
            raise
        finally:
            lane.batches -= 1
            lane.requests -= len(batch)
            lane.alone = False
            self._pump()

    async def _call(self, lane: _Lane[Q, A], part: list[_Pending[Q, A]]) -> BaseException | None:
        """Run a part of a batch and set its answers; return the error that it raised instead."""
        try:
            answers = await lane.run([pending.request for pending in part])
            self._check(part, answers)
        except RunnerLost:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return error  # the runner's own, such as a cancelled call of it
        except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the requests
            return error
        self._resolve(part, answers)
        return None

    def _check(self, part: list[_Pending[Q, A]], answers: Sequence[A]) -> None:
        if len(answers) != len(part):
            raise WrongAnswers(f"expected {len(part)} answers; got {len(answers)}")
        for pending, answer in zip(part, answers, strict=True):
            if not self._is_answer(pending.request, answer):
                raise WrongAnswers(f"expected an answer to {pending.request!r}; got {answer!r}")

    def _resolve(self, part: list[_Pending[Q, A]], answers: Sequence[A]) -> None:
        """Give each request its answer, unless its client has gone."""
        for pending, answer in zip(part, answers, strict=True):
            if not pending.answer.done():
                pending.answer.set_result(answer)

    def _blame(self, part: list[_Pending[Q, A]], error: RunnerLost) -> None:
        """Note that a runner was lost in a call of these, and fail those that lost too many.

        Without a runner left all fail for that reason, as nothing will be answered any more.
        """
        if not self._lanes:
            _fail(part, _no_runner_left(error), error)
        for pending in _unanswered(part):
            pending.losses += 1
            if pending.losses < MOST_LOSSES:
                self._suspects.append(pending)
            else:
                lost = RequestFailed(f"{pending.losses} runners were lost with it: {error}")
                _fail([pending], lost, error)

    def _lose(self, lane: _Lane[Q, A], error: RunnerLost, left: list[_Pending[Q, A]]) -> None:
        """Take a runner out, and keep what it had not answered for another one."""
        if lane in self._lanes:
            self._lanes.remove(lane)
        self._returned.append(left)
        if self._lanes:
            return
        self._refuse_waiting()
        for batch in (*self._returned, self._suspects, self._queue):
            _fail(batch, _no_runner_left(error), error)
        self._returned.clear()
        self._suspects.clear()
        self._queue.clear()

    def _abandon(self, batch: list[_Pending[Q, A]]) -> None:
        """Cancel what is not answered: no task may begin any more."""
        self._closed = True
        self._refuse_waiting()
        for pending in _unanswered(
            (*batch, *chain(*self._returned), *self._suspects, *self._queue)
        ):
            pending.answer.cancel()
        self._returned.clear()
        self._suspects.clear()
        self._queue.clear()

    def _refuse_waiting(self) -> None:
        for pending in self._waiting:
            if not pending.placed.done():
                pending.placed.set_exception(self._refusal())
        self._waiting.clear()

    def _refusal(self) -> BatchingError:
        if not self._lanes:
            return NoRunnerLeft("all runners are lost")
        return ExecutorClosed("the executor is closed; open another one")

    def _forget(self, pending: _Pending[Q, A]) -> None:
        """Free the place of a request that was cancelled while it waited."""
        if pending in self._queue or pending in self._waiting:
            self._queue.pop(pending, None)
            self._waiting.pop(pending, None)
            self._pump()


def _unanswered(batch: Iterable[_Pending[Q, A]]) -> Iterator[_Pending[Q, A]]:
    return (pending for pending in batch if not pending.answer.done())


def _fail(batch: Iterable[_Pending[Q, A]], error: BatchingError, cause: BaseException) -> None:
    error.__cause__ = cause
    for pending in _unanswered(batch):
        pending.answer.set_exception(error)


def _no_runner_left(error: RunnerLost) -> NoRunnerLeft:
    return NoRunnerLeft(f"all runners are lost, the last one by: {error}")
