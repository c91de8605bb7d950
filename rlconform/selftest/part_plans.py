"""Drawn plans of what happens to the executor, the trajectory queue and the rewards of rows."""

from __future__ import annotations

from hypothesis import strategies as st

from rlconform.grpo.rewards.row_history import ScorerDoes
from rlconform.grpo.simulation.executor_play import (
    ClientPlan,
    ExecutorPlan,
    RunnerPlan,
    right,
    short,
    swapped,
)
from rlconform.grpo.simulation.queue_play import GetPlan, PutPlan, QueuePlan
from rlconform.grpo.simulation.reward_play import RewardCallPlan, RewardPlan, RewardRowPlan

#: When something happens: often at about the same time, and while a batch waits or runs.
_MOMENT_MS = st.sampled_from([0, 1, 2, 4, 10, 11, 12, 20, 40])
#: One of several, as often as the first is listed.
_CHANGES = st.sampled_from([right, right, right, short, swapped])


def executor_plans() -> st.SearchStrategy[ExecutorPlan]:
    """Return plans of arrivals, cancellations, errors, wrong answers and losses of runners."""
    clients = st.builds(
        ClientPlan,
        at_ms=_MOMENT_MS,
        cancelled_after_ms=st.none() | _MOMENT_MS,
        bad=st.integers(0, 5).map(lambda number: number == 5),
        kills=st.integers(0, 11).map(lambda number: number == 11),
    )
    runners = st.builds(
        RunnerPlan,
        seconds=st.sampled_from([0.003, 0.05, 0.02, 0.0]),
        dies_at=st.none() | st.integers(0, 3),
        change=_CHANGES,
    )
    return st.builds(
        ExecutorPlan,
        clients=st.lists(clients, min_size=8, max_size=24) | st.lists(clients, max_size=7),
        runners=st.lists(runners, min_size=1, max_size=2)
        | st.lists(runners, min_size=3, max_size=4),
        size=st.integers(1, 6),
        wait_ms=st.sampled_from([5, 20, 0]),
        queue=st.integers(1, 8),
        batches_per_runner=st.integers(1, 2),
        closed_at_ms=st.none() | _MOMENT_MS,
    )


@st.composite
def queue_plans(draw: st.DrawFn) -> QueuePlan:
    """Draw a plan of puts and gets, of their cancellations, of ages, and of the end."""
    pause = st.sampled_from([0.0, 0.05, 0.3])
    never: st.SearchStrategy[float | None] = st.none()
    patience = st.sampled_from([None, 0.005, 0.02, 0.5]) if draw(st.booleans()) else never
    puts = st.builds(PutPlan, after_s=pause, age=st.integers(0, 3), cancelled_after_s=patience)
    gets = st.builds(
        GetPlan,
        after_s=pause,
        most=st.integers(1, 4),
        least=st.integers(1, 3),
        cancelled_after_s=patience,
    )
    return QueuePlan(
        producers=draw(st.lists(st.lists(puts, max_size=8), min_size=1, max_size=2)),
        consumers=draw(st.lists(st.lists(gets, max_size=6), min_size=1, max_size=2)),
        capacity=draw(st.integers(1, 4)),
        on_full=draw(st.sampled_from(["wait", "refuse"])),
        max_staleness=draw(st.none() | st.integers(0, 2)),
        advances_at_s=draw(st.lists(st.sampled_from([0.1, 0.4, 0.9, 1.7]), max_size=4)),
        closed_at_s=draw(st.none() | st.sampled_from([0.3, 1.0])),
        consumers_stop=draw(st.booleans()),
    )


@st.composite
def reward_plans(draw: st.DrawFn) -> RewardPlan:
    """Draw a plan of calls in training and validation, with rows of every kind.

    In one plan of ten the scorer is silent, as these take real time.
    """
    does = [one for one in ScorerDoes if one is not ScorerDoes.HANGS]
    rows = st.builds(
        RewardRowPlan,
        does=st.sampled_from([ScorerDoes.REWARDS] * 4 + does),
        has_text=st.integers(0, 5).map(lambda number: number != 5),
        after_turns=st.integers(0, 3),
    )
    calls = st.builds(
        RewardCallPlan,
        rows=st.lists(rows, min_size=1, max_size=6),
        split=st.sampled_from(["train", "val"]),
        given_up_first=st.booleans(),
    )
    return RewardPlan(
        draw(st.lists(calls, min_size=1, max_size=3)),
        draw(st.integers(1, 4)),
        silent=draw(st.integers(0, 9)) == 9,
    )
