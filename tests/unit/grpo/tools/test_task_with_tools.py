"""A task whose policy calls tools: observations, answers, and calls that repeat."""

from __future__ import annotations

import pytest

from rlconform.contract import ConfigError
from rlconform.grpo.config import load_config
from rlconform.grpo.tasks import EnvStep, PolicyTurn, RolloutTask, build_task

DIGITS = (
    "data.task=sum",
    "data.tools=[calculator]",
    "data.tool_format=digits",
    "grpo.max_rollout_turns=4",
)


@pytest.fixture
def task() -> RolloutTask:
    config = load_config("tiny_llama_copy", DIGITS)
    return build_task(config.data, config.grpo.seed)


def respond(task: RolloutTask, *texts: str, ended: bool = True) -> EnvStep:
    turns = [PolicyTurn(text, ended or text != texts[-1]) for text in texts]
    return task.respond(task.problem(0), turns)


def answered(text: str) -> EnvStep:
    return EnvStep(0.0, text, tool_results=(text,))


def test_a_call_is_answered_and_an_answer_is_rewarded(task: RolloutTask) -> None:
    assert respond(task, "?13+4") == answered("17")
    answer = task.problem(0).answer
    assert respond(task, "?13+4", answer).reward == 1.0
    assert respond(task, "?13+4", answer).observation is None


def test_a_wrong_call_is_answered_in_the_tokenizers_characters(task: RolloutTask) -> None:
    assert respond(task, "?") == answered("?")
    assert respond(task, "?3+") == answered("?")


def test_a_row_that_repeats_its_calls_ends(task: RolloutTask) -> None:
    assert respond(task, "?1+1", "?1+1") == answered("?")
    assert respond(task, "?1+1", "?1+1", "?1+1") == EnvStep(0.0)
    assert respond(task, "?1+1", "?1+1", "?1+2") == answered("3")


def test_a_turn_that_was_cut_is_no_call(task: RolloutTask) -> None:
    assert respond(task, "?1+1", ended=False).observation is None


def test_retrieval_needs_a_server() -> None:
    with pytest.raises(ConfigError, match="retrieval_url"):
        load_config("tiny_llama_copy", ["data.tools=[retrieval]"])
