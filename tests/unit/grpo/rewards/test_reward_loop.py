"""The reward loop: many rows at once, each with one outcome, whatever its scorer does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.failures import RewardFailure, WorkerLost
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.functions import FunctionScorer
from rlconform.grpo.rewards.outcome import FailedReward

from .scorers import SOON_S, Answers, Gate, opened, request, reward

Cause = RewardFailureCause


def outcome(answer: Callable[[RewardRequest], Any], of: RewardRequest | None = None) -> Any:
    with opened(Answers(answer)) as loop:
        return loop.submit(of or request()).result(SOON_S)


def test_each_row_gets_its_own_answer_and_is_asked_for_once() -> None:
    scorer = Answers(lambda of: reward(of, float(of.sample_id[-1])))
    with opened(scorer) as loop:
        futures = [loop.submit(request(f"p_g{row}")) for row in range(8)]
        values = [future.result(SOON_S) for future in futures]
    assert [(one.sample_id, one.value) for one in values] == [(f"p_g{i}", i) for i in range(8)]
    assert sorted(of.sample_id for of in scorer.asked) == [f"p_g{row}" for row in range(8)]
    assert scorer.closed == 1


def test_functions_that_wait_do_so_side_by_side() -> None:
    """The barrier lets nobody through before all rows are being scored."""
    barrier = threading.Barrier(8)

    def compute_score(**_: Any) -> float:
        barrier.wait(SOON_S)
        return 1.0

    with opened(FunctionScorer(compute_score, {}, threads=8), max_concurrent=8) as loop:
        futures = [loop.submit(request(f"p_g{row}")) for row in range(8)]
        assert [future.result(SOON_S).value for future in futures] == [1.0] * 8


def test_coroutines_that_wait_do_so_side_by_side() -> None:
    async def compute_score(**_: Any) -> float:
        return float(await barrier.wait())

    with opened(FunctionScorer(compute_score, {}, threads=1), timeout_s=SOON_S) as loop:
        barrier = asyncio.Barrier(8)
        futures = [loop.submit(request(f"p_g{row}")) for row in range(8)]
        assert sorted(future.result(SOON_S).value for future in futures) == list(range(8))


def test_a_function_that_waits_does_not_hold_up_the_others() -> None:
    gate = Gate()

    def compute_score(extra_info: Any, **_: Any) -> float:
        if extra_info["sample_id"] == "p_g0":
            gate.pass_through()
        return 1.0

    with opened(FunctionScorer(compute_score, {}, threads=2), timeout_s=SOON_S) as loop:
        slow = loop.submit(request("p_g0"))
        gate.wait_for(1)
        assert loop.submit(request("p_g1")).result(SOON_S).value == 1.0
        assert not slow.done()
        gate.open()
        assert slow.result(SOON_S).value == 1.0


def test_no_more_rows_are_scored_at_once_than_configured() -> None:
    gate, most = Gate(), 2

    def compute_score(**_: Any) -> float:
        gate.pass_through()
        return 1.0

    with opened(
        FunctionScorer(compute_score, {}, threads=8), max_concurrent=most, timeout_s=SOON_S
    ) as loop:
        futures = [loop.submit(request(f"p_g{row}")) for row in range(5)]
        gate.wait_for(most)
        assert gate.reached == most
        gate.open()
        assert [future.result(SOON_S).value for future in futures] == [1.0] * 5


def test_a_late_row_fails_alone_and_its_answer_is_dropped() -> None:
    gate = Gate()

    def compute_score(extra_info: Any, **_: Any) -> float:
        if (extra_info["sample_id"], extra_info["attempt"]) == ("p_g0", 0):
            gate.pass_through()
            return 99.0
        return 1.0

    with opened(FunctionScorer(compute_score, {}, threads=4), timeout_s=0.2) as loop:
        late = loop.submit(request("p_g0")).result(SOON_S)
        gate.open()  # only now it answers
        again = loop.submit(request("p_g0", 1)).result(SOON_S)
    assert isinstance(late, FailedReward)
    assert late.cause is Cause.TIMEOUT
    assert "'p_g0' has no reward after 0.2 s" in late.error
    assert (again.attempt, again.value) == (1, 1.0)


def test_a_coroutine_that_never_returns_is_cancelled() -> None:
    cancelled = threading.Event()

    class Hangs(RewardScorer):
        async def score(self, request: RewardRequest) -> Reward:  # noqa: ARG002
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            raise AssertionError("nobody sets the event")

    with opened(Hangs(), timeout_s=0.1) as loop:
        assert loop.submit(request()).result(SOON_S).cause is Cause.TIMEOUT
        assert cancelled.wait(SOON_S)


@pytest.mark.parametrize(
    "error", [ValueError("bad"), SystemExit(3), StopIteration("end"), KeyError("k")]
)
def test_whatever_a_function_raises_fails_its_row_alone(error: BaseException) -> None:
    def compute_score(extra_info: Any, **_: Any) -> float:
        if extra_info["sample_id"] == "p_g0":
            raise error
        return 1.0

    with opened(FunctionScorer(compute_score, {}, threads=2)) as loop:
        failed = loop.submit(request("p_g0")).result(SOON_S)
        assert failed.cause is Cause.RAISED
        assert "the scorer raised" in failed.error
        assert loop.submit(request("p_g1")).result(SOON_S).value == 1.0


def test_the_loss_of_all_reward_workers_is_no_failure_of_a_row() -> None:
    def lost(of: RewardRequest) -> Reward:
        raise WorkerLost(f"nobody is left to score {of.sample_id}")

    with pytest.raises(WorkerLost, match="nobody is left to score p_g0"):
        outcome(lost)


def test_a_scorer_names_the_cause_itself() -> None:
    def refuse(of: RewardRequest) -> Reward:
        raise RewardFailure(f"{of.sample_id}: gone", cause=Cause.UNAVAILABLE)

    assert outcome(refuse) == FailedReward(Cause.UNAVAILABLE, "p_g0: gone")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**400])
@pytest.mark.parametrize("part", ["value", "components", "turn_values"])
def test_a_reward_that_is_not_finite_is_none(value: float, part: str) -> None:
    parts: dict[str, Any] = {"components": {"a": value}, "turn_values": (value,)}
    given = {"value": value} if part == "value" else {part: parts[part]}
    got = outcome(lambda of: reward(of, **given))
    assert got.cause is Cause.NOT_FINITE
    assert "'p_g0' to be finite" in got.error


@pytest.mark.parametrize(("sample_id", "attempt"), [("p_g1", 0), ("p_g0", 1), ("q_g0", 0)])
def test_an_answer_of_another_row_or_attempt_is_refused(sample_id: str, attempt: int) -> None:
    got = outcome(lambda _: Reward(sample_id, attempt, 1.0))
    assert got.cause is Cause.WRONG_ROW
    assert "reward of 'p_g0', attempt 0; got" in got.error
    assert f"that of {sample_id!r}, attempt {attempt}" in got.error


def test_there_is_a_turn_value_per_turn_or_none() -> None:
    two = request("p_g0", 0, "a", "b")
    assert outcome(lambda of: reward(of, turn_values=(0.5, 1)), two).turn_values == (0.5, 1.0)
    got = outcome(lambda of: reward(of, turn_values=(0.5,)), two)
    assert got.cause is Cause.MALFORMED
    assert "each of the 2 turns" in got.error


@pytest.mark.parametrize("answer", [None, 1.0, "1"])
def test_an_answer_that_is_no_reward_is_refused(answer: object) -> None:
    assert outcome(lambda _: answer).cause is Cause.MALFORMED


def test_extra_values_are_what_json_can_hold() -> None:
    got = outcome(lambda of: reward(of, extra={"a": (1, "x", None), 2: {"b": True}}))
    assert got.extra == {"a": [1, "x", None], "2": {"b": True}}
    assert outcome(lambda of: reward(of, extra={"a": object()})).cause is Cause.MALFORMED


def test_a_row_that_is_given_up_is_not_waited_for() -> None:
    gate = Gate()

    def compute_score(**_: Any) -> float:
        gate.pass_through()
        return 1.0

    with opened(FunctionScorer(compute_score, {}, threads=1), timeout_s=SOON_S) as loop:
        future = loop.submit(request())
        gate.wait_for(1)
        assert future.cancel()
        gate.open()
        assert loop.submit(request("p_g1")).result(SOON_S).value == 1.0


def test_close_gives_open_rows_up_and_may_be_called_twice() -> None:
    started = threading.Event()

    class Hangs(Answers):
        async def score(self, request: RewardRequest) -> Reward:
            self.asked.append(request)
            started.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody sets the event")

    scorer = Hangs(lambda _: None)
    with opened(scorer, timeout_s=SOON_S) as loop:
        future = loop.submit(request())
        assert started.wait(SOON_S)
        loop.close()
        with pytest.raises(CancelledError):
            future.result(SOON_S)
    assert scorer.closed == 1
