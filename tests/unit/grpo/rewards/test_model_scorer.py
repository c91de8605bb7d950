"""``ModelScorer`` over real reward models in this process, without Ray."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rlconform.grpo.config import RewardModelConfig
from rlconform.grpo.failures import RewardFailure, WorkerLost
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.batch_runner import RunnerLost
from rlconform.grpo.rewards.model_scorer import ModelScorer
from rlconform.grpo.rewards.reward_model import RewardModel, RowScore, RowToScore
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.rewards.tiny_reward_model import TINY_REWARD_MODEL
from rlconform.grpo.simulation.loop import simulate
from rlconform.grpo.tasks import PolicyTurn, Problem


@dataclass
class ModelHere:
    """Runs batches on a model in this process, and notes their sizes and the CPU time."""

    model: RewardModel
    lost: bool = False
    sizes: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    async def __call__(self, rows: Sequence[RowToScore], /) -> Sequence[RowScore]:
        await asyncio.sleep(0)
        if self.lost:
            raise RunnerLost("it died")
        self.sizes.append(len(rows))
        started = time.process_time()
        scores = self.model.score(rows)
        self.cpu_s += time.process_time() - started
        return scores


@dataclass(frozen=True)
class WorkersHere(RewardWorkers):
    """Workers of this process."""

    def runners(self) -> list[Any]:
        return list(self.actors)


@pytest.fixture(scope="module")
def model() -> RewardModel:
    return RewardModel(TINY_REWARD_MODEL, 0, "cpu")


def scorer(*runners: ModelHere, **options: Any) -> ModelScorer:
    return ModelScorer(WorkersHere(runners, 60.0), RewardModelConfig(enable=True, **options))


def request(number: int, *, text: str = "3", question: str = "3") -> RewardRequest:
    problem = Problem(f"p{number}", ({"role": "user", "content": question},), question)
    return RewardRequest(f"p{number}_g0", number % 3, problem, (PolicyTurn(text, True),), "train")


async def score_all(opened: RewardScorer, requests: Sequence[RewardRequest]) -> list[Any]:
    return await asyncio.gather(*map(opened.score, requests), return_exceptions=True)


def test_rows_get_their_own_scores_in_batches(model: RewardModel) -> None:
    runner = ModelHere(model)
    requests = [request(i, text=str(i % 10), question=str(i % 7)) for i in range(50)]

    async def run() -> list[Reward]:
        opened = scorer(runner, max_batch_size=16)
        rewards = await score_all(opened, requests)
        await opened.close()
        return rewards

    rewards = simulate(run())
    assert [(each.sample_id, each.attempt) for each in rewards] == [
        (each.sample_id, each.attempt) for each in requests
    ]
    right = [i % 10 == i % 7 for i in range(50)]
    assert [each.value > 0.75 for each in rewards] == right
    assert [each.value < 0.25 for each in rewards] == [not each for each in right]
    assert runner.sizes == [16, 16, 16, 2]


def test_a_row_without_a_score_fails_alone(model: RewardModel) -> None:
    requests = [request(i) for i in range(9)]
    requests[4] = request(4, question="1" * 600)

    async def run() -> list[Any]:
        return await score_all(scorer(ModelHere(model)), requests)

    outcomes = simulate(run())
    failed = outcomes.pop(4)
    assert isinstance(failed, RewardFailure)
    assert str(failed).startswith("'p4_g0' has no score: RewardFailure: 'p4_g0' has 605 tokens")
    assert all(each.value > 0.75 for each in outcomes)


def test_a_score_that_is_not_finite_is_a_failure() -> None:
    broken = RewardModel(TINY_REWARD_MODEL, 0, "cpu")
    assert broken._model is not None
    with torch.no_grad():
        broken._model.get_parameter("score.weight").fill_(float("inf"))

    async def run() -> list[Any]:
        return await score_all(scorer(ModelHere(broken)), [request(0)])

    (failed,) = simulate(run())
    assert isinstance(failed, RewardFailure)
    assert "has the score" in str(failed)


def test_without_a_worker_the_run_ends(model: RewardModel) -> None:
    async def run(*runners: ModelHere) -> list[Any]:
        return await score_all(scorer(*runners), [request(i) for i in range(5)])

    dead, alive = ModelHere(model, lost=True), ModelHere(model)
    assert all(isinstance(each, Reward) for each in simulate(run(dead, alive)))
    assert all(isinstance(each, WorkerLost) for each in simulate(run(dead, dead)))


def test_a_closed_scorer_scores_no_row(model: RewardModel) -> None:
    async def run() -> list[Any]:
        opened = scorer(ModelHere(model))
        await opened.close()
        await opened.close()
        return await score_all(opened, [request(0)])

    (failed,) = simulate(run())
    assert isinstance(failed, RewardFailure)
    assert "is closed" in str(failed)


def test_batches_take_less_processor_time_than_single_rows(model: RewardModel) -> None:
    """The benchmark measures seconds; here it is CPU time, which other processes don't change."""
    requests = [request(i, text=str(i % 10)) for i in range(64)]
    batched, single = ModelHere(model), ModelHere(model)

    async def run() -> None:
        for _ in range(3):
            await score_all(scorer(batched, max_batch_size=32), requests)
            one_by_one = scorer(single, max_batch_size=1, max_wait_ms=0)
            for each in requests:
                await one_by_one.score(each)

    simulate(run())
    assert batched.sizes == [32, 32] * 3
    assert single.sizes == [1] * 64 * 3
    assert single.cpu_s > 3 * batched.cpu_s
