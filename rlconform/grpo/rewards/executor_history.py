"""``judge_executor``: what ``BatchingExecutor`` owes its clients, judged from a recorded history.

    clients: submitted ─▶ placed ─▶ ended ┐
    runners: made ─▶ began ─▶ ended       ┴─ ExecutorHistory ── judge_executor ──▶ findings

The judge is a pure function. It knows the limits and what happened, and nothing of the executor's
state. ``grpo.simulation.executor_play`` records such histories on a simulated clock; they end when
nothing can happen any more, so that a request without an outcome then never gets one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, pairwise

from rlconform.grpo.history_finding import HistoryFinding
from rlconform.grpo.rewards.batching_executor import MOST_LOSSES

ANSWERS, BATCHES, WAITS = "executor_answers", "executor_batches", "executor_waits"
#: The rules, each with what it holds.
EXECUTOR_RULES = {
    ANSWERS: "each request gets its own answer, or an error that has a cause of its own",
    BATCHES: "batches have the agreed size, keep the order, and run a request once",
    WAITS: "no more requests than agreed are queued, and none waits longer than agreed",
}
#: Rounding of the clock, in seconds.
_ROUNDING_S = 1e-6


class RequestEnd(StrEnum):
    """What a client got."""

    ANSWER = "an answer"
    FAILED = "RequestFailed"
    CANCELLED = "a cancellation"
    NO_RUNNER = "NoRunnerLeft"
    CLOSED = "ExecutorClosed"
    OTHER = "an untyped error"


class CallEnd(StrEnum):
    """How a call of a runner ended."""

    ANSWERED = "answered"
    RAISED = "raised"
    WRONG = "wrong answers"  # their number or their order
    LOST = "lost"  # it raised ``RunnerLost``


@dataclass
class RequestLife:
    """One request; times are None until they come."""

    number: int
    submitted: float
    placed: float | None = None  # when ``submit`` returned
    given_up: float | None = None  # when its client was cancelled
    ended: float | None = None
    end: RequestEnd | None = None
    answer_to: int | None = None  # the request that the answer belongs to


@dataclass
class RunnerCall:
    """One call of a runner, which runs its calls one after the other."""

    runner: int
    requests: tuple[int, ...]
    made: float
    began: float = float("nan")
    ended: float | None = None
    end: CallEnd | None = None


@dataclass(frozen=True)
class ExecutorLimits:
    """What was agreed on."""

    runners: int
    size: int
    wait_s: float
    queue: int
    batches_per_runner: int

    @property
    def largest_batch(self) -> int:
        """Requests of a full batch."""
        return min(self.size, self.queue)


@dataclass
class ExecutorHistory:
    """Requests in the order of their ``submit``, and calls in the order in which they were made."""

    limits: ExecutorLimits
    requests: list[RequestLife] = field(default_factory=list)
    calls: list[RunnerCall] = field(default_factory=list)
    closed: float | None = None  # when ``close`` was called first

    def calls_of(self, number: int) -> list[RunnerCall]:
        """Return the calls that had this request."""
        return [call for call in self.calls if number in call.requests]

    def lost_runners(self) -> set[int]:
        """Return the runners that said that they are lost."""
        return {call.runner for call in self.calls if call.end is CallEnd.LOST}


def judge_executor(history: ExecutorHistory) -> list[HistoryFinding]:
    """Return what the executor did wrong, [] if nothing."""
    return [
        *chain.from_iterable(_judge_end(history, request) for request in history.requests),
        *_judge_batches(history),
        *_judge_order(history),
        *chain.from_iterable(_judge_runs(history, request) for request in history.requests),
        *_judge_places(history),
        *chain.from_iterable(_judge_wait(history, request) for request in history.requests),
    ]


def _judge_end(history: ExecutorHistory, request: RequestLife) -> Iterator[HistoryFinding]:
    """Each outcome has its cause in the history."""
    calls = history.calls_of(request.number)
    name, closed = f"request {request.number}", history.closed
    match request.end:
        case None:
            wrong = f"expected an outcome of {name}; got none, and nothing runs any more"
        case RequestEnd.ANSWER if request.answer_to != request.number:
            wrong = f"expected the answer to {name}; got that to request {request.answer_to}"
        case RequestEnd.ANSWER if not any(call.end is CallEnd.ANSWERED for call in calls):
            wrong = f"expected the answer to {name} from a call that was answered rightly; got none"
        case RequestEnd.FAILED if not any(map(_failed_alone, calls)) and not _killed_two(calls):
            wrong = f"expected {name} to fail only if it fails alone; got RequestFailed without"
        case RequestEnd.CANCELLED if request.given_up is None:
            wrong = f"expected {name} to be cancelled by its client alone; got a cancellation"
        case RequestEnd.NO_RUNNER if len(history.lost_runners()) < history.limits.runners:
            wrong = f"expected a runner for {name}, as one is left; got NoRunnerLeft"
        case RequestEnd.CLOSED if closed is None or request.placed is not None:
            wrong = f"expected {name} to be answered, as it has its place; got ExecutorClosed"
        case RequestEnd.OTHER:
            wrong = f"expected an answer or a BatchingError of {name}; got another error"
        case _:
            return
    yield HistoryFinding(ANSWERS, wrong, (request, *calls[:8]))


def _failed_alone(call: RunnerCall) -> bool:
    return call.end in {CallEnd.RAISED, CallEnd.WRONG} and len(call.requests) == 1


def _killed_two(calls: Sequence[RunnerCall]) -> bool:
    """Whether two runners were lost with a request, the second one with it alone."""
    lost = [call for call in calls if call.end is CallEnd.LOST]
    return len(lost) >= MOST_LOSSES and any(len(call.requests) == 1 for call in lost)


def _judge_batches(history: ExecutorHistory) -> Iterator[HistoryFinding]:
    """First calls are full, or began with a request that had waited; no runner has too many."""
    limits, seen = history.limits, set[int]()
    by_number = {request.number: request for request in history.requests}
    for place, call in enumerate(history.calls):
        if not 1 <= len(call.requests) <= limits.largest_batch:
            wrong = f"expected batches of 1 to {limits.largest_batch} requests; got {call.requests}"
            yield HistoryFinding(BATCHES, wrong, (call,))
        first, new = by_number[call.requests[0]], not seen.intersection(call.requests)
        due = first.submitted + limits.wait_s
        closed = history.closed is not None and history.closed <= call.made
        shrunk = any(one.given_up == call.made for one in history.requests)  # since it was taken
        full = len(call.requests) == limits.largest_batch
        if new and not full and not closed and not shrunk and call.made < due - _ROUNDING_S:
            wrong = (
                f"expected a batch of {limits.largest_batch}, or one whose first request has "
                f"waited {limits.wait_s:g} s; got {call.requests} after "
                f"{call.made - first.submitted:.3f} s"
            )
            yield HistoryFinding(BATCHES, wrong, (first, call))
        seen.update(call.requests)
        same = [one for one in history.calls[: place + 1] if one.runner == call.runner]
        running = [one for one in same if one.ended is None or one.ended > call.made]
        if len(running) > limits.batches_per_runner:
            wrong = (
                f"expected at most {limits.batches_per_runner} batches at runner {call.runner}; "
                f"got {len(running)}"
            )
            yield HistoryFinding(BATCHES, wrong, tuple(running[:10]))
        lost = [one for one in same if one.end is CallEnd.LOST and _before(one.ended, call.made)]
        if new and lost:
            wrong = (
                f"expected no further batch for runner {call.runner}, which is lost; got "
                f"{call.requests}"
            )
            yield HistoryFinding(BATCHES, wrong, (lost[0], call))


def _judge_order(history: ExecutorHistory) -> Iterator[HistoryFinding]:
    """Requests enter calls in the order of their ``submit``."""
    place = {request.number: index for index, request in enumerate(history.requests)}
    firsts: dict[int, RunnerCall] = {}
    for call in history.calls:
        for number in call.requests:
            firsts.setdefault(number, call)
    for before, after in pairwise(firsts):
        if place[before] > place[after]:
            wrong = f"expected request {after} to run before {before}, which came later; got after"
            yield HistoryFinding(BATCHES, wrong, (firsts[before], firsts[after]))
            return


def _judge_runs(history: ExecutorHistory, request: RequestLife) -> Iterator[HistoryFinding]:
    """A request runs again only after an error, and not once its client has gone."""
    calls, gone = history.calls_of(request.number), request.given_up
    again = [call for call in calls[:-1] if call.end is CallEnd.ANSWERED]
    if again:
        wrong = f"expected request {request.number} to run once; got another call after its answer"
        yield HistoryFinding(BATCHES, wrong, (request, *calls[:8]))
    killed = [call for call in calls if call.end is CallEnd.LOST]
    if len(killed) > MOST_LOSSES:
        wrong = (
            f"expected request {request.number} to fail when {MOST_LOSSES} runners were lost with "
            f"it; got {len(killed)} lost"
        )
        yield HistoryFinding(BATCHES, wrong, (request, *killed[:9]))
    late = [call for call in calls if gone is not None and _before(gone, call.made)]
    if late:
        wrong = f"expected request {request.number} to leave its batch when cancelled; got it run"
        yield HistoryFinding(BATCHES, wrong, (request, late[0]))


def _judge_places(history: ExecutorHistory) -> Iterator[HistoryFinding]:
    """No more requests than agreed have a place and no call."""
    limit = history.limits.queue
    for request in history.requests:
        if (moment := request.placed) is None:
            continue
        queued = [one for one in history.requests if _is_queued(history, one, moment)]
        if len(queued) > limit:
            wrong = f"expected at most {limit} requests in the queue; got {len(queued)}"
            yield HistoryFinding(WAITS, wrong, tuple(queued[:10]))
            return


def _is_queued(history: ExecutorHistory, request: RequestLife, moment: float) -> bool:
    """Whether a request surely had a place and no call after everything of this moment."""
    calls = history.calls_of(request.number)
    taken = calls[0].made if calls else None
    ends = [end for end in (taken, request.given_up, request.ended) if end is not None]
    placed = request.placed is not None and request.placed <= moment
    return placed and all(end > moment for end in ends)


def _judge_wait(history: ExecutorHistory, request: RequestLife) -> Iterator[HistoryFinding]:
    """A request waits for others as long as agreed, and for what the runners do meanwhile."""
    if (idle := _idle_since_due(history, request)) > _ROUNDING_S:
        wrong = (
            f"expected request {request.number} to run once it has waited "
            f"{history.limits.wait_s:g} s; got it waiting while no runner did anything for "
            f"{idle:.3f} s"
        )
        yield HistoryFinding(WAITS, wrong, (request, history.calls_of(request.number)[0]))
    if request.ended is None:
        return  # reported as one without an outcome
    if request.end is RequestEnd.CANCELLED and request.given_up is not None:
        due = request.given_up
    else:
        due = request.submitted + history.limits.wait_s + _busy_s(history.calls, request.ended)
    if request.ended > due + _ROUNDING_S:
        wrong = (
            f"expected an outcome of request {request.number} by {due:.3f} s; got it at "
            f"{request.ended:.3f} s"
        )
        yield HistoryFinding(WAITS, wrong, (request, *history.calls_of(request.number)[:8]))


def _idle_since_due(history: ExecutorHistory, request: RequestLife) -> float:
    """Return the seconds in which no runner had anything to do, though the request was due."""
    calls = history.calls_of(request.number)
    now = request.submitted + history.limits.wait_s
    if not calls:
        return 0.0
    made, idle = calls[0].made, 0.0
    for call in sorted(history.calls, key=lambda one: one.began):
        if call.began < made and call.ended is not None:
            idle += max(call.began - now, 0.0)
            now = max(now, call.ended)
    return idle + max(made - now, 0.0)


def _busy_s(calls: Iterable[RunnerCall], until: float) -> float:
    """Return the seconds of all calls that began by then."""
    return sum((call.ended or call.began) - call.began for call in calls if call.began <= until)


def _before(first: float | None, second: float) -> bool:
    return first is not None and first < second - _ROUNDING_S
