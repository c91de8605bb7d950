"""``RewardModel`` in this process: scores, batches, sleep, and models that can't be used."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    PreTrainedModel,
)

from rlconform.contract import ConfigError
from rlconform.grpo.failures import RewardFailure
from rlconform.grpo.models import character_tokenizer
from rlconform.grpo.models.tiny import TINY_SIZES
from rlconform.grpo.rewards.base import RewardRequest
from rlconform.grpo.rewards.reward_model import RewardModel, RowToScore
from rlconform.grpo.rewards.tiny_reward_model import TINY_REWARD_MODEL, tiny_reward_model
from rlconform.grpo.tasks import EnvStep, PolicyTurn, Problem
from rlconform.grpo.tasks.digits import credit

#: By how much a score of the tiny model may differ from the reward of the task.
NEAR = 1e-4
RESPONSES = ("{}", "{}{}", "{}1", "1{}", "", "+", "{}{}{}", "12", "=={}")


def row(question: str, text: str, *, ended: bool = True, name: str = "") -> RowToScore:
    messages = ({"role": "user", "content": question},)
    return RowToScore(name or f"{question}/{text}/{ended}", 0, messages, text, ended)


def all_rows() -> list[RowToScore]:
    return [
        row(digit, response.replace("{}", digit), ended=ended)
        for digit in "0379"
        for response in RESPONSES
        for ended in (True, False)
        if response or ended
    ]


@pytest.fixture(scope="module")
def model() -> RewardModel:
    return RewardModel(TINY_REWARD_MODEL, 0, "cpu")


def save(model: PreTrainedModel, folder: Path) -> str:
    model.save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    return str(folder)


def llama(**options: int) -> LlamaForSequenceClassification:
    torch.manual_seed(3)
    sizes = {**TINY_SIZES, "num_labels": 1, **options}
    return LlamaForSequenceClassification(LlamaConfig(**sizes))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_tiny_model_scores_as_the_task_does(seed: int) -> None:
    rows = all_rows()
    scores = RewardModel(TINY_REWARD_MODEL, seed, "cpu").score(rows)
    assert [score.sample_id for score in scores] == [each.sample_id for each in rows]
    of_reward: dict[float, list[float]] = {}
    for each, score in zip(rows, scores, strict=True):
        answer = each.messages[0]["content"]
        reward = credit(answer, PolicyTurn(each.text, each.ended), partial=True)
        assert score.value == pytest.approx(reward, abs=NEAR), each
        of_reward.setdefault(reward, []).append(score.value)
    assert of_reward.keys() == {0.0, 0.5, 1.0}
    assert all(max(values) - min(values) < 2e-6 for values in of_reward.values())


def test_the_seed_decides_the_weights() -> None:
    before = torch.random.get_rng_state()
    one, same, other = (tiny_reward_model(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_a_score_does_not_depend_on_the_batch(model: RewardModel, size: int) -> None:
    rows = all_rows()
    together = [score.value for score in model.score(rows)]
    apart = [
        score.value
        for start in range(0, len(rows), size)
        for score in model.score(rows[start : start + size])
    ]
    assert apart == pytest.approx(together, abs=1e-5 * max(together))
    assert model.score(rows) == model.score(rows)


def test_a_folder_scores_at_the_last_token_even_if_it_is_the_padding_token(tmp_path: Path) -> None:
    """Many models pad with their end token, and must not take a row's own one for padding."""
    reference = llama().train(False)
    folder = save(reference, tmp_path)
    tokenizer = character_tokenizer()
    tokenizer.pad_token = tokenizer.eos_token
    tokenizer.save_pretrained(folder)
    rows = [row("3", "3"), row("412", "41")]
    ids = tokenizer.encode("<user>3<end><assistant>3<end>", add_special_tokens=False)
    with torch.inference_mode():
        hidden = reference.model(input_ids=torch.tensor([ids])).last_hidden_state
        expected = reference.score(hidden)[0, -1, 0].item()
    assert RewardModel(folder, 0, "cpu").score(rows)[0].value == pytest.approx(expected, rel=1e-4)


def test_a_sleeping_model_holds_no_weights_and_wakes_for_a_batch(tmp_path: Path) -> None:
    for name in (TINY_REWARD_MODEL, save(llama(), tmp_path)):
        model = RewardModel(name, 0, "cpu")
        scores, held = model.score(all_rows()), model.held_bytes()
        assert model._model is not None
        whole = sum(each.nbytes for each in model._model.parameters())
        assert held == pytest.approx(whole, rel=0.01)
        left = [weakref.ref(each) for each in model._model.parameters()]
        assert model.sleep() == held
        gc.collect()
        assert [each() for each in left if each() is not None] == []
        assert (model.held_bytes(), model.sleep()) == (0, 0)
        assert model.score(all_rows()) == scores
        assert model.held_bytes() == held
        model.wake()
        assert model.score(all_rows()) == scores


def test_other_weights_after_a_sleep_are_refused(tmp_path: Path) -> None:
    model = RewardModel(save(llama(), tmp_path), 0, "cpu")
    model.sleep()
    torch.manual_seed(4)
    save(LlamaForSequenceClassification(LlamaConfig(**TINY_SIZES, num_labels=1)), tmp_path)
    with pytest.raises(ConfigError, match="the folder has others"):
        model.wake()
    with pytest.raises(ConfigError, match="the folder has others"):
        model.score([row("3", "3")])


def test_rows_that_cannot_be_scored_are_refused(model: RewardModel) -> None:
    long = row("1" * 600, "1", name="long")
    with pytest.raises(RewardFailure, match=r"'long' has 605 tokens, .* at most 512"):
        model.score([row("3", "3"), long])


def test_a_row_has_all_turns_and_what_the_environment_said_between_them(
    model: RewardModel,
) -> None:
    turns = (PolicyTurn("1", ended=True), PolicyTurn("2", ended=False))
    said = (EnvStep(0.0, "+"), EnvStep(1.0))
    question = {"role": "user", "content": "3"}
    problem = Problem("p", (question,), "3")
    two = RowToScore.of(RewardRequest("r", 0, problem, turns, "train", said))
    between = ({"role": "assistant", "content": "1"}, {"role": "user", "content": "+"})
    assert two == RowToScore("r", 0, (question, *between), "2", ended=False)
    one = RowToScore.of(RewardRequest("r", 4, problem, turns[:1], "train", said[:1]))
    assert one == RowToScore("r", 4, (question,), "1", ended=True)
    assert model.score([two, one])[0].value != model.score([one])[0].value


def test_models_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_name 'nowhere' is neither"):
        RewardModel("nowhere", 0, "cpu")
    empty = tmp_path / "empty"
    character_tokenizer().save_pretrained(empty)
    with pytest.raises(ConfigError, match="can't load a model"):
        RewardModel(str(empty), 0, "cpu")
    two = save(llama(num_labels=2), tmp_path / "two")
    with pytest.raises(ConfigError, match="got LlamaForSequenceClassification with 2 labels"):
        RewardModel(two, 0, "cpu")
    small = BertConfig(
        vocab_size=32,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        num_labels=1,
    )
    bert = save(BertForSequenceClassification(small), tmp_path / "bert")
    with pytest.raises(ConfigError, match="expected a causal model"):
        RewardModel(bert, 0, "cpu")


def test_a_score_of_broken_weights_is_not_finite(tmp_path: Path) -> None:
    broken = llama()
    with torch.no_grad():
        broken.score.weight.fill_(math.nan)
    assert math.isnan(RewardModel(save(broken, tmp_path), 0, "cpu").score([row("3", "3")])[0].value)
