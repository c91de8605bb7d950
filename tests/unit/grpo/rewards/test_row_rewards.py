"""Rewards in the rollout worker: when a row is handed over, and what it keeps."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from rlconform.contract.fields import SAMPLE_MASK
from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.failures import RewardFailure, TooFewRewards
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rollout.groups import AbortedGroup, GroupRollout

from .scorers import SOON_S, Answers, Gate, reward

PARTITION = "train"
Cause = RewardFailureCause
#: All rows of the group ``g`` have a text.
WITH_TEXT = ("data.digits=3",)
#: Up to three turns, with the environment's answers between them.
GUESS = (
    "data.task=guess",
    "grpo.max_rollout_turns=3",
    "generation.max_new_tokens=12",
    "policy.max_total_sequence_length=64",
)


@pytest.fixture
def with_scorer(
    open_worker: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """Opens a worker of groups of three rows, whose rows this scorer rewards."""

    def open_one(scorer: RewardScorer, *overrides: str) -> Any:
        monkeypatch.setattr(
            "rlconform.grpo.rollout.worker.build_scorer", lambda *_: scorer, raising=True
        )
        return open_worker(*overrides)

    return open_one


def number(of: RewardRequest) -> int:
    return int(of.sample_id.rpartition("_g")[2])


def raises_for(*rows: int) -> Callable[[RewardRequest], Reward]:
    def answer(of: RewardRequest) -> Reward:
        if number(of) in rows:
            raise RewardFailure(f"no reward of {of.sample_id}", cause=Cause.UNAVAILABLE)
        return reward(of, float(number(of)))

    return answer


def test_every_row_with_a_text_is_scored_once_with_its_own_metadata(
    with_scorer: Callable[..., Any],
) -> None:
    scorer = Answers(lambda of: reward(of, float(number(of)), extra={f"key{number(of)}": 1}))
    worker = with_scorer(scorer)
    groups = [worker.whole(f"g{name}", number=name) for name in range(4)]
    empty = 0
    for name, group in enumerate(groups):
        problem = worker.problem(name)
        for row, summary in enumerate(group.summaries):
            asked = [of for of in scorer.asked if of.sample_id == f"g{name}_g{row}"]
            if not asked:
                empty += 1
                assert (summary.reward, summary.extra) == (0.0, {})
                continue
            assert (summary.reward, summary.extra) == (float(row), {f"key{row}": 1})
            (of,) = asked
            assert (of.problem, of.attempt, of.split) == (problem, 0, "train")
    assert len(scorer.asked) == 12 - empty
    assert empty < 6


def test_a_validation_says_so_row_by_row(with_scorer: Callable[..., Any]) -> None:
    scorer = Answers(reward)
    worker = with_scorer(scorer)
    worker.actor.collect([worker.problem(i) for i in range(4)], "val")
    assert {of.split for of in scorer.asked} == {"val"}
    assert len({of.problem.uid for of in scorer.asked}) == len(scorer.asked) > 1


def test_a_row_is_handed_over_while_the_others_are_generated(
    with_scorer: Callable[..., Any],
) -> None:
    """The engine makes no further token of the longest row before a shorter one is scored."""
    scored = threading.Event()

    def answer(of: RewardRequest) -> Reward:
        scored.set()
        return reward(of)

    worker = with_scorer(Answers(answer), *LONG)
    name, longest = uneven(worker)
    scored.clear()
    waited: list[bool] = []

    def before_token(token: int) -> None:
        if token == longest - 1:  # the last token of the longest row
            waited.append(scored.wait(SOON_S))

    worker.engine.before_token = before_token
    worker.whole(name)
    assert waited == [True]


#: Responses of one turn and of 2 to 12 tokens.
LONG = ("generation.max_new_tokens=12", "policy.max_total_sequence_length=32")


def uneven(worker: Any) -> tuple[str, int]:
    """Return the name of a group with a text of few tokens, and the tokens of its longest row."""
    for number in range(20):
        name = f"probe{number}"
        lengths = [summary.response_length for summary in worker.whole(name).summaries]
        worker.client.clear_samples([f"{name}_g{row}" for row in range(3)], PARTITION)
        if 2 <= min(lengths) < max(lengths):
            return name, max(lengths)
    raise AssertionError("an untrained policy ends some of its rows early")


def test_a_row_without_a_reward_stays_in_its_group_and_is_masked(
    with_scorer: Callable[..., Any],
) -> None:
    worker = with_scorer(Answers(raises_for(1)), *WITH_TEXT)
    group = worker.whole()
    assert [summary.reward for summary in group.summaries] == [0.0, None, 2.0]
    assert [summary.reward_failure for summary in group.summaries] == [
        None, Cause.UNAVAILABLE, None,
    ]  # fmt: skip
    assert worker.read(group)[SAMPLE_MASK].tolist() == [1.0, 0.0, 1.0]
    assert worker.stored([f"g_g{row}" for row in range(3)]) == [f"g_g{row}" for row in range(3)]


def test_a_group_with_one_reward_left_is_not_put(with_scorer: Callable[..., Any]) -> None:
    worker = with_scorer(Answers(raises_for(0, 2)), *WITH_TEXT)
    with pytest.raises(TooFewRewards, match="2 of 3 rows of 'g' have no reward; the last: no rew"):
        worker.generate()
    assert worker.stored([f"g_g{row}" for row in range(3)]) == []


def test_a_failed_reward_may_be_an_error_of_the_run(with_scorer: Callable[..., Any]) -> None:
    worker = with_scorer(Answers(raises_for(1)), "reward_loop.on_failure=raise", *WITH_TEXT)
    with pytest.raises(RewardFailure, match="row 'g_g1' has no reward: no reward of g_g1") as got:
        worker.generate()
    assert got.value.failure_cause is Cause.UNAVAILABLE
    again = pickle.loads(pickle.dumps(got.value))
    assert (str(again), again.failure_cause) == (str(got.value), Cause.UNAVAILABLE)


def test_the_reward_of_several_turns_is_that_of_the_whole_row(
    with_scorer: Callable[..., Any],
) -> None:
    """The environment only answers; the scorer gets all turns, and its values are kept by turn."""
    scorer = Answers(
        lambda of: reward(of, 5.0, turn_values=tuple(float(len(t.text)) for t in of.turns))
    )
    worker = with_scorer(scorer, *GUESS)
    group = worker.whole()
    for of in scorer.asked:
        summary = group.summaries[number(of)]
        assert summary.reward == 5.0
        assert len(of.turns) == len(of.environment) == len(summary.spans)
        assert summary.turn_values == tuple(float(len(turn.text)) for turn in of.turns)
    assert max(len(of.turns) for of in scorer.asked) > 1


# -- aborted groups ------------------------------------------------------------------------------


@pytest.fixture
def waiting(with_scorer: Callable[..., Any]) -> Iterator[tuple[Any, Gate, Answers]]:
    """A worker whose first rewards wait for a gate that is opened in the end."""
    gate = Gate()

    class Waits(Answers):
        async def score(self, request: RewardRequest) -> Reward:
            self.asked.append(request)
            if request.attempt == 0:
                await asyncio.to_thread(gate.pass_through)
            return reward(request, 1.0 + request.attempt)

    scorer = Waits(reward)
    yield with_scorer(scorer, *WITH_TEXT), gate, scorer
    gate.open()


def test_an_abort_does_not_wait_for_rewards_and_the_rows_are_scored_anew(
    waiting: tuple[Any, Gate, Answers],
) -> None:
    worker, gate, scorer = waiting
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(worker.generate()))
    thread.start()
    gate.wait_for(3)  # all rows are done, and none has its reward
    worker.actor.abort(["g"])
    thread.join(SOON_S)
    (aborted,) = got
    assert isinstance(aborted, AbortedGroup)
    assert [row.done for row in aborted.partial.rows] == [True] * 3
    assert [row.outcome for row in aborted.partial.rows] == [None] * 3
    partial = pickle.loads(pickle.dumps(aborted.partial))
    group = worker.generate("g", partial)
    assert isinstance(group, GroupRollout)
    assert [summary.reward for summary in group.summaries] == [2.0] * 3
    assert sorted((of.sample_id, of.attempt) for of in scorer.asked) == [
        (f"g_g{row}", attempt) for row in range(3) for attempt in range(2)
    ]


def test_a_late_answer_to_an_attempt_that_was_given_up_is_refused(
    with_scorer: Callable[..., Any],
) -> None:
    worker = with_scorer(Answers(lambda of: Reward(of.sample_id, 0, 1.0)), *WITH_TEXT)
    worker.abort_before(1)
    aborted = worker.generate()
    for row in aborted.partial.rows:
        row.scorings = 1
    worker.go_on()
    with pytest.raises(TooFewRewards, match=r"attempt 1; got that of 'g_g[0-2]', attempt 0"):
        worker.generate("g", aborted.partial)


def test_a_row_that_has_its_reward_is_not_scored_again(with_scorer: Callable[..., Any]) -> None:
    scored = threading.Event()

    def answer(of: RewardRequest) -> Reward:
        scored.set()
        return reward(of, 3.0)

    scorer = Answers(answer)
    worker = with_scorer(scorer, *LONG)
    name, longest = uneven(worker)
    scorer.asked.clear()
    scored.clear()

    def abort_when_scored(token: int) -> None:
        if token == longest - 1:
            assert scored.wait(SOON_S)
            worker.actor.abort([name])

    worker.engine.before_token = abort_when_scored
    aborted = worker.generate(name)
    assert {row.done for row in aborted.partial.rows} == {True, False}
    worker.go_on()
    whole = worker.whole(name, aborted.partial)
    asked = [(of.sample_id, of.attempt) for of in scorer.asked]
    kept = [row.sample_id for row in aborted.partial.rows if row.outcome is not None]
    assert all(asked.count((sample_id, 0)) == 1 for sample_id in kept)
    assert not any((sample_id, 1) in asked for sample_id in kept)
    assert [summary.reward for summary in whole.summaries] == [3.0] * 3
    assert torch.equal(worker.read(whole)[SAMPLE_MASK], torch.ones(3))
