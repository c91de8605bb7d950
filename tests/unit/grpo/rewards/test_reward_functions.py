"""Reward functions of the user: how they are loaded, what they get, and what they may return."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlconform.contract import ConfigError
from rlconform.events.schema import RewardFailureCause
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.config.rewards import CustomRewardFunctionConfig
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.rewards.base import Reward, RewardRequest, RewardScorer
from rlconform.grpo.rewards.build import build_scorer, check_rewards
from rlconform.grpo.rewards.functions import FunctionScorer, load_reward_function
from rlconform.grpo.rewards.model_scorer import ModelScorer
from rlconform.grpo.rewards.outcome import checked
from rlconform.grpo.rewards.reward_workers import RewardWorkers
from rlconform.grpo.rewards.service import ServiceScorer
from rlconform.grpo.rewards.task_rule import TaskRule
from rlconform.grpo.tasks import EnvStep

from .scorers import request


def scored(scorer: RewardScorer, of: RewardRequest) -> Reward:
    async def score() -> Reward:
        try:
            return checked(await scorer.score(of), of)
        finally:
            await scorer.close()

    return asyncio.run(score())


def answer(value: object, of: RewardRequest | None = None) -> Reward:
    return scored(FunctionScorer(lambda **_: value, {}, threads=1), of or request())


def test_a_function_gets_the_metadata_of_its_own_row() -> None:
    calls: list[dict[str, Any]] = []

    def compute_score(**arguments: Any) -> float:
        calls.append(arguments)
        return 1.0

    rows = [
        request("a_g0", 0, "7", data_source="gsm8k", extra_info={"level": 2}),
        request("b_g3", 4, "x", "y", split="val", data_source="math", extra_info={"page": "i"}),
    ]
    for row in rows:
        scored(FunctionScorer(compute_score, {"bonus": 2}, threads=1), row)
    assert calls == [
        {
            "data_source": "gsm8k",
            "solution_str": "7",
            "ground_truth": "7",
            "extra_info": {
                "level": 2, "validate": False, "sample_id": "a_g0", "attempt": 0, "turns": ["7"],
            },
            "bonus": 2,
        },
        {
            "data_source": "math",
            "solution_str": "x\ny",
            "ground_truth": "7",
            "extra_info": {
                "page": "i", "validate": True, "sample_id": "b_g3", "attempt": 4,
                "turns": ["x", "y"],
            },
            "bonus": 2,
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    "value", [1, True, 1.0, np.float32(1), np.array([1.0]), torch.tensor(1.0), torch.ones(1, 1)]
)
def test_a_number_is_a_reward(value: object) -> None:
    got = answer(value)
    assert (got.value, type(got.value)) == (1.0, float)
    assert answer({"score": value}) == got


def test_other_keys_survive_row_by_row() -> None:
    first = answer({"score": 0.5, "acc": np.bool_(True), "pred": "7"})
    second = answer({"score": 0.0, "error": {"line": 3}})
    assert first.extra == {"acc": True, "pred": "7"}
    assert second.extra == {"error": {"line": 3}}


def test_components_and_turn_values_have_their_meaning() -> None:
    got = answer(
        {"score": 1, "components": {"format": 1, "right": 0}, "turn_values": [0.25, 0.75]},
        request("p_g0", 0, "a", "b"),
    )
    assert got.components == {"format": 1.0, "right": 0.0}
    assert got.turn_values == (0.25, 0.75)
    assert got.extra == {}


@pytest.mark.parametrize(
    "value",
    [None, "1", [1.0, 2.0], {"acc": 1}, {"score": None}, {"score": 1, "components": 3},
     {"score": 1, "turn_values": 0.5}, {"score": 1, "turn_values": [1, 2]}],
)  # fmt: skip
def test_what_is_no_reward_is_refused(value: object) -> None:
    with pytest.raises(RewardFailure) as refused:
        answer(value)
    assert refused.value.failure_cause is RewardFailureCause.MALFORMED


def test_the_rule_of_the_task_adds_up_what_the_environment_said() -> None:
    steps = (EnvStep(0.25, "+", {"a": 1.0}), EnvStep(0.5, None, {"a": 0.5, "b": 2.0}))
    row = request("p_g0", 2, "x", "y")
    of = RewardRequest(row.sample_id, 2, row.problem, row.turns, "train", steps)
    got = scored(TaskRule(), of)
    assert got == Reward("p_g0", 2, 0.75, {"a": 1.5, "b": 2.0}, (0.25, 0.5))


# -- loading -------------------------------------------------------------------------------------

SOURCE = """
from dataclasses import dataclass

@dataclass
class Rule:
    bonus: float = 1.0

def compute_score(data_source, solution_str, ground_truth, extra_info, bonus=1.0):
    return Rule(bonus).bonus * (solution_str == ground_truth)

async def judged(data_source, solution_str, ground_truth, extra_info):
    return {"score": 0.5, "by": "judge"}
"""


def config(*overrides: str) -> MasterConfig:
    return load_config("tiny_llama_copy", overrides)


def test_a_function_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(SOURCE, "utf-8")
    path = f"custom_reward_function.path={tmp_path / 'mine.py'}"
    conf = config(path, "custom_reward_function.reward_kwargs.bonus=3.0")
    check_rewards(conf)
    assert scored(build_scorer(conf), request()).value == 3.0
    judged = scored(build_scorer(config(path, "custom_reward_function.name=judged")), request())
    assert (judged.value, judged.extra) == (0.5, {"by": "judge"})


def test_a_function_of_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rules_of_this_test.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    conf = config("custom_reward_function.path=rules_of_this_test")
    assert scored(build_scorer(conf), request()).value == 1.0


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("nowhere.py", "compute_score", "can't be loaded: .*nowhere.py"),
        ("no_module_of_this_name", "compute_score", "can't be loaded: No module named"),
        ("broken.py", "compute_score", "can't be loaded: invalid syntax"),
        ("mine.py", "scores", r"there are \['dataclass', 'compute_score', 'judged'\]"),
        ("mine.py", "__name__", "expected a function '__name__'"),
    ],
)
def test_a_function_that_is_not_there_is_named(
    path: str, name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SOURCE, "utf-8")
    Path("broken.py").write_text("def compute_score(:\n", "utf-8")
    with pytest.raises(ConfigError, match=message):
        load_reward_function(CustomRewardFunctionConfig(path=path, name=name))


def test_a_configuration_chooses_its_scorer() -> None:
    assert type(build_scorer(config())) is TaskRule
    enabled = "reward_model.enable=true"
    service = build_scorer(config(enabled, "reward_model.service.base_url=http://127.0.0.1:1"))
    assert type(service) is ServiceScorer
    asyncio.run(service.close())
    with pytest.raises(ConfigError, match=r"reward_model\.enable needs reward workers"):
        build_scorer(config(enabled))


def test_the_runs_reward_workers_are_asked_if_there_are_any() -> None:
    async def build() -> None:
        workers = RewardWorkers((object(),), timeout_s=1.0)
        scorer = build_scorer(config("reward_model.enable=true"), workers)
        assert type(scorer) is ModelScorer
        await scorer.close()

    asyncio.run(build())
