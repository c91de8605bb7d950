"""The rewards of rows under drawn scorers, splits and aborts, judged by ``judge_rows``."""

from __future__ import annotations

from hypothesis import event, example, given, settings

from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.rewards.base import Reward, RewardRequest
from rlconform.grpo.rewards.outcome import FailedReward
from rlconform.grpo.rewards.row_history import OUTCOMES, REQUESTS, ScoredRow, ScorerDoes, judge_rows
from rlconform.grpo.simulation.reward_play import (
    EMPTY_REWARD,
    RewardCallPlan,
    RewardPlan,
    RewardRowPlan,
    play_rewards,
)
from rlconform.grpo.tasks import Problem
from rlconform.selftest.part_plans import reward_plans

EVERYTHING = [
    *(RewardRowPlan(does) for does in ScorerDoes if does is not ScorerDoes.HANGS),
    RewardRowPlan(has_text=False),
]


@settings(max_examples=150, deadline=None)
@given(reward_plans())
@example(RewardPlan([RewardCallPlan(EVERYTHING), RewardCallPlan(EVERYTHING, "val", True)]))
@example(RewardPlan([RewardCallPlan(EVERYTHING)], max_concurrent=2, silent=True))
def test_each_row_has_its_own_outcome_and_is_asked_for_once(plan: RewardPlan) -> None:
    rows = play_rewards(plan)
    for row in rows:
        event(type(row.outcome).__name__)
    assert judge_rows(rows, EMPTY_REWARD) == []
    assert len(rows) == sum(len(call.rows) for call in plan.calls)


def test_a_play_has_an_outcome_of_every_kind() -> None:
    """Without this, a judge of a play in which nothing fails would be content."""
    call = RewardCallPlan(EVERYTHING)
    rows = [*play_rewards(RewardPlan([call])), *play_rewards(RewardPlan([call], silent=True))]
    causes = {row.outcome.cause for row in rows if isinstance(row.outcome, FailedReward)}
    assert causes == {*RewardFailureCause} - {RewardFailureCause.UNAVAILABLE}
    assert [row.outcome.value for row in rows if isinstance(row.outcome, Reward)][1] == EMPTY_REWARD


def test_another_rows_reward_and_a_second_request_are_found() -> None:
    problem = Problem("p", (), "7")
    given_reward, other = Reward("p_g0", 0, 1.0), Reward("p_g1", 0, 2.0)
    request = RewardRequest("p_g0", 0, problem, (), "train")
    row = ScoredRow("p_g0", problem, "train", True, ScorerDoes.REWARDS)
    row.asked, row.given, row.outcome = [request, request], [given_reward], other
    assert {finding.rule: finding.sentence for finding in judge_rows([row], 0.0)} == {
        OUTCOMES: "expected the reward that the scorer gave to p_g0 last; got 2.0 of p_g1, "
        "attempt 0",
        REQUESTS: "expected one request for p_g0 and attempt 0; got 2",
    }
