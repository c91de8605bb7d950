"""``BatchingExecutor`` under drawn arrivals, cancellations, errors and losses of runners.

``judge_executor`` holds what it owes its clients; defects that it must find are in
``rlconform.mutants.async_parts``.
"""

from __future__ import annotations

from hypothesis import event, given, settings

from rlconform.grpo.rewards.executor_history import (
    ANSWERS,
    WAITS,
    CallEnd,
    ExecutorHistory,
    ExecutorLimits,
    RequestEnd,
    RequestLife,
    RunnerCall,
    judge_executor,
)
from rlconform.grpo.simulation.executor_play import (
    ClientPlan,
    ExecutorPlan,
    RunnerPlan,
    play_executor,
    swapped,
)
from rlconform.selftest.part_plans import executor_plans


@given(executor_plans())
@settings(max_examples=500, deadline=None)
def test_nothing_is_lost_or_answered_twice_in_order_and_in_time(plan: ExecutorPlan) -> None:
    history = play_executor(plan)
    for request in history.requests:
        event(f"outcome {request.end}")
    assert judge_executor(history) == []
    assert len(history.requests) == len(plan.clients)


def test_a_history_has_all_that_happened() -> None:
    """Without this, a judge of an empty history would be content."""
    plan = ExecutorPlan(
        [ClientPlan(0, bad=True), ClientPlan(1), ClientPlan(2, 1), ClientPlan(40)],
        [RunnerPlan(0.01, change=swapped)],
        size=3,
        closed_at_ms=30,
    )
    history = play_executor(plan)
    ends = [request.end for request in history.requests]
    assert ends == [
        RequestEnd.FAILED, RequestEnd.ANSWER, RequestEnd.CANCELLED, RequestEnd.CLOSED,
    ]  # fmt: skip
    assert [(call.requests, call.end) for call in history.calls] == [
        ((0, 1, 2), CallEnd.RAISED),  # the third one is cancelled meanwhile
        ((0, 1), CallEnd.RAISED),
        ((0,), CallEnd.RAISED),
        ((1,), CallEnd.ANSWERED),
    ]
    assert history.closed == 0.03
    assert judge_executor(history) == []


def test_a_request_without_an_outcome_and_a_late_one_are_found() -> None:
    limits = ExecutorLimits(runners=1, size=2, wait_s=0.01, queue=4, batches_per_runner=1)
    call = RunnerCall(0, (1,), 2.0, 2.0, 2.5, CallEnd.ANSWERED)
    late = RequestLife(1, 1.0, 1.0, ended=2.5, end=RequestEnd.ANSWER, answer_to=1)
    history = ExecutorHistory(limits, [RequestLife(0, 1.0, 1.0), late], [call])
    found = {finding.rule: finding.sentence for finding in judge_executor(history)}
    assert found == {
        ANSWERS: "expected an outcome of request 0; got none, and nothing runs any more",
        WAITS: "expected an outcome of request 1 by 1.510 s; got it at 2.500 s",
    }
