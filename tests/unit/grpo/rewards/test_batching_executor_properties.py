"""``BatchingExecutor`` under drawn arrivals, cancellations, errors and losses of runners."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rlconform.grpo.rewards.batching_executor import ExecutorClosed, NoRunnerLeft, RequestFailed
from rlconform.grpo.simulation.loop import simulate

from .scripted_runners import Answer, Call, ScriptedRunner, executor

#: Rounding of the simulated clock.
CLOSE_S = 1e-6


@dataclass(frozen=True)
class Client:
    """A client that submits one request."""

    at_ms: int
    cancelled_after_ms: int | None
    bad: bool


@dataclass(frozen=True)
class Plan:
    """Everything that happens."""

    clients: list[Client]
    seconds: list[float]  # of a call, by runner
    dies_at: list[int | None]  # by runner
    size: int
    wait_ms: int
    queue: int
    batches_per_runner: int
    closed_at_ms: int | None


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    moment = st.integers(0, 60)
    clients = st.builds(
        Client,
        at_ms=moment,
        cancelled_after_ms=st.none() | moment,
        bad=st.integers(0, 5).map(lambda number: number == 0),
    )
    runners = draw(st.integers(1, 3))
    exactly = {"min_size": runners, "max_size": runners}
    return Plan(
        clients=draw(st.lists(clients, max_size=24)),
        seconds=draw(st.lists(st.sampled_from([0.0, 0.003, 0.02]), **exactly)),
        dies_at=draw(st.lists(st.none() | st.integers(0, 3), **exactly)),
        size=draw(st.integers(1, 6)),
        wait_ms=draw(st.sampled_from([0, 5, 20])),
        queue=draw(st.integers(1, 8)),
        batches_per_runner=draw(st.integers(1, 2)),
        closed_at_ms=draw(st.none() | moment),
    )


@dataclass
class Ended:
    """What a client got."""

    outcome: Answer | BaseException
    at: float
    placed: float | None  # when ``submit`` returned


async def play(plan: Plan, calls: list[Call]) -> list[Ended]:
    bad = frozenset(number for number, client in enumerate(plan.clients) if client.bad)
    runners = [
        ScriptedRunner(i, calls, seconds=seconds, bad=bad, dies_at=dies_at)
        for i, (seconds, dies_at) in enumerate(zip(plan.seconds, plan.dies_at, strict=True))
    ]
    opened = executor(
        runners,
        size=plan.size,
        wait_ms=plan.wait_ms,
        queue=plan.queue,
        batches_per_runner=plan.batches_per_runner,
    )
    loop = asyncio.get_running_loop()
    ended: dict[int, Ended] = {}

    async def one(number: int, client: Client) -> None:
        await asyncio.sleep(client.at_ms / 1000)
        placed = None

        async def ask() -> Answer:
            nonlocal placed
            answer = await opened.submit(number)
            placed = loop.time()
            return await answer

        task = asyncio.create_task(ask())
        if client.cancelled_after_ms is not None:
            loop.call_later(client.cancelled_after_ms / 1000, task.cancel)
        (outcome,) = await asyncio.gather(task, return_exceptions=True)
        assert number not in ended, "an answer comes once"
        ended[number] = Ended(outcome, loop.time(), placed)

    async def close() -> None:
        if plan.closed_at_ms is not None:
            await asyncio.sleep(plan.closed_at_ms / 1000)
            await opened.close()

    await asyncio.gather(close(), *(one(*each) for each in enumerate(plan.clients)))
    await opened.close()
    return [ended[number] for number in range(len(plan.clients))]


@given(plans())
@settings(max_examples=300, deadline=None)
def test_nothing_is_lost_or_answered_twice(plan: Plan) -> None:
    calls: list[Call] = []
    ended = simulate(play(plan, calls))  # raises if a future is never resolved
    dead = all(each is not None for each in plan.dies_at)
    for number, (client, end) in enumerate(zip(plan.clients, ended, strict=True)):
        match end.outcome:
            case tuple():
                assert end.outcome == (number, 2 * number)
                assert not client.bad
            case RequestFailed():
                assert client.bad
            case asyncio.CancelledError():
                assert client.cancelled_after_ms is not None
            case NoRunnerLeft():
                assert dead
            case ExecutorClosed():
                assert plan.closed_at_ms is not None
                assert end.placed is None
            case other:
                raise AssertionError(f"an untyped outcome: {other!r}")
        event(f"outcome {type(end.outcome).__name__}")
    # A request runs again only after an error of its batch or the loss of its runner.
    if not any(client.bad for client in plan.clients) and not any(
        each is not None for each in plan.dies_at
    ):
        run = [number for call in calls for number in call.requests]
        assert len(run) == len(set(run))


@given(plans())
@settings(max_examples=200, deadline=None)
def test_batches_keep_the_order_and_the_size(plan: Plan) -> None:
    calls: list[Call] = []
    simulate(play(plan, calls))
    assert all(1 <= len(call.requests) <= min(plan.size, plan.queue) for call in calls)
    arrival = [client.at_ms for client in plan.clients]
    for call in calls:
        moments = [arrival[number] for number in call.requests]
        assert moments == sorted(moments)
    if len(plan.dies_at) == 1 and not any(client.bad for client in plan.clients):
        # One runner that works through its batches: all of a client's requests are run in order.
        moments = [arrival[number] for call in calls for number in call.requests]
        assert moments == sorted(moments)


@given(plans())
@settings(max_examples=200, deadline=None)
def test_waiting_is_bounded(plan: Plan) -> None:
    """A request waits ``max_wait_ms`` and for the batches before it, its own included."""
    calls: list[Call] = []
    ended = simulate(play(plan, calls))
    for number, (client, end) in enumerate(zip(plan.clients, ended, strict=True)):
        arrived = client.at_ms / 1000
        if isinstance(end.outcome, asyncio.CancelledError):
            assert client.cancelled_after_ms is not None
            assert end.at <= arrived + client.cancelled_after_ms / 1000 + CLOSE_S
            continue
        busy = sum(call.ended - call.began for call in calls if call.began <= end.at)
        assert end.at <= arrived + plan.wait_ms / 1000 + busy + CLOSE_S, number
