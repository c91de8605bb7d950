"""Rollouts of a real engine, and of an engine with scripted responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from rlconform.contract.fields import (
    GENERATION_LOGPROBS,
    INPUT_IDS,
    INPUT_LENGTHS,
    SAMPLE_MASK,
    TOKEN_MASK,
)
from rlconform.grpo.config import MasterConfig, load_config
from rlconform.grpo.failures import DataFailure, ModelFailure
from rlconform.grpo.generation import (
    GenerationEngine,
    OnFinished,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    ShouldStop,
)
from rlconform.grpo.models import character_tokenizer, load_model, token_logprobs
from rlconform.grpo.rollout.worker import MESSAGE_LOGS, ROLLOUT_FIELDS, Rollout, RolloutWorker
from rlconform.grpo.tasks import build_task
from rlconform.wire import rebuild_message_logs


def config(*overrides: str) -> MasterConfig:
    return load_config(
        "tiny_llama_copy",
        ["data.max_length=3", "grpo.num_generations_per_prompt=3", *overrides],
    )


def collected(conf: MasterConfig, n_problems: int = 2, split: str = "train") -> Rollout:
    worker = RolloutWorker("cpu")
    worker.build(conf)
    task = build_task(conf.data, conf.grpo.seed, split)  # type: ignore[arg-type]
    try:
        return worker.collect([task.problem(i) for i in range(n_problems)], split)  # type: ignore[arg-type]
    finally:
        worker.close()


def test_rows_are_groups_of_their_prompts_with_the_engines_logprobs() -> None:
    conf = config()
    rollout = collected(conf)
    columns = rollout.columns
    uids = [build_task(conf.data, 0, "train").problem(i).uid for i in range(2)]
    assert rollout.sample_ids == [f"{uid}_g{i}" for uid in uids for i in range(3)]
    ids, lengths = columns[INPUT_IDS], columns[INPUT_LENGTHS]
    assert ids.shape[1] == int(lengths.max())
    assert columns[SAMPLE_MASK].tolist() == [1.0] * 6
    model = load_model("tiny-llama", seed=0)
    with torch.no_grad():
        by_trainer = token_logprobs(model, ids, lengths)
    trained = columns[TOKEN_MASK].bool()
    torch.testing.assert_close(
        columns[GENERATION_LOGPROBS], torch.where(trained, by_trainer, 0), rtol=1e-4, atol=1e-5
    )
    for row, summary in enumerate(rollout.summaries):
        ((start, stop),) = summary.spans
        assert stop == lengths[row]
        assert trained[row].nonzero().flatten().tolist() == list(range(start, stop))
        end = character_tokenizer().eos_token_id
        assert summary.truncated == (ids[row, stop - 1] != end)


def test_the_same_problems_give_the_same_rows_and_a_groups_rows_differ() -> None:
    first, again, other = collected(config()), collected(config()), collected(config("grpo.seed=1"))
    assert torch.equal(first.columns[INPUT_IDS], again.columns[INPUT_IDS])
    assert torch.equal(first.columns[GENERATION_LOGPROBS], again.columns[GENERATION_LOGPROBS])
    assert not torch.equal(first.columns[GENERATION_LOGPROBS], other.columns[GENERATION_LOGPROBS])
    assert len(set(map(tuple, first.columns[INPUT_IDS].tolist()))) > 2


def test_a_validation_has_one_row_of_each_problem() -> None:
    rollout = collected(config(), n_problems=3, split="val")
    assert len(rollout.sample_ids) == len(set(rollout.sample_ids)) == 3


def test_a_validation_may_have_several_rows_of_each_problem() -> None:
    conf = config("grpo.val_num_generations_per_prompt=2", "generation.val_greedy=false")
    rollout = collected(conf, n_problems=2, split="val")
    uids = [build_task(conf.data, 0, "val").problem(i).uid for i in range(2)]
    assert rollout.sample_ids == [f"{uid}_g{i}" for uid in uids for i in range(2)]


def test_summaries_have_the_components_of_the_rewards() -> None:
    for summary in collected(config()).summaries:
        assert summary.components["format"] == (not summary.truncated)
        assert set(summary.components) == {"correctness", "format"}


def test_message_logs_come_back_from_their_spans() -> None:
    rollout = collected(config())
    logs = rebuild_message_logs(rollout.columns[MESSAGE_LOGS], rollout.columns[INPUT_IDS])
    for row, log in enumerate(logs):
        assert [message["role"] for message in log] == ["user", "assistant"]
        tokens = torch.cat([message["token_ids"] for message in log])
        length = int(rollout.columns[INPUT_LENGTHS][row])
        assert torch.equal(tokens, rollout.columns[INPUT_IDS][row, :length])


def test_a_prompt_that_leaves_no_room_is_named() -> None:
    conf = config("data.min_length=3", "policy.max_total_sequence_length=8")
    with pytest.raises(DataFailure, match=r"problem '.*' has 6 tokens"):
        collected(conf)
    assert issubclass(DataFailure, ValueError)  # which callers already catch


def test_a_build_closes_the_engine_of_the_previous_run_before_it_creates_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    class Engine(Script):
        def close(self) -> None:
            calls.append("close")

    def build_engine(*_args: object, **_kwargs: object) -> Engine:
        calls.append("build")
        return Engine()

    monkeypatch.setattr("rlconform.grpo.rollout.worker.build_engine", build_engine)
    worker = RolloutWorker("cpu")
    worker.build(config())
    worker.build(config())
    assert calls == ["build", "close", "build"]
    worker.close()
    worker.close()
    assert calls[3:] == ["close"]
    with pytest.raises(RuntimeError, match="build first"):
        worker.refit({}, 1)


# -- scripted responses --------------------------------------------------------------------------


class Script(GenerationEngine):
    """Returns scripted responses, turn by turn, and records the number of rows of each call."""

    weight_version = 7

    def __init__(self, *turns: Sequence[str]) -> None:
        super().__init__()
        self._turns = list(turns)
        self.asked: list[int] = []

    def _generate(
        self,
        prompts: Prompts,
        seeds: Sequence[int],
        sampling: Sampling,
        prefixes: Sequence[Prefix],  # noqa: ARG002 - of the engine's signature
        should_stop: ShouldStop,  # noqa: ARG002
        on_finished: OnFinished,
    ) -> Responses:
        self.asked.append(len(prompts))
        tokenizer = character_tokenizer()
        texts = self._turns.pop(0)
        ids = [torch.tensor(tokenizer.encode(t, add_special_tokens=False)).long() for t in texts]
        truncated = [row[-1:].tolist() != [*sampling.stop_token_ids] for row in ids]
        logprobs = [-torch.arange(1.0, len(row) + 1) for row in ids]
        assert len(ids) == len(prompts) == len(set(seeds))
        versions = [torch.full_like(row, 7) for row in ids]
        finished = torch.ones(len(ids), dtype=torch.bool)
        responses = Responses(ids, logprobs, versions, torch.tensor(truncated), finished)
        responses.report_finished(on_finished)
        return responses

    def _load_weights(self, weights: Mapping[str, Tensor]) -> str:
        raise NotImplementedError


def guesses(script: Script, *overrides: str) -> Rollout:
    """One group of three rows that guess the same hidden digit."""
    conf = config(
        "data.task=guess",
        "grpo.max_rollout_turns=3",
        "policy.max_total_sequence_length=40",
        *overrides,
    )
    worker = RolloutWorker("cpu")
    worker.build(conf)
    worker._engine = script
    try:
        return worker.collect([build_task(conf.data, conf.grpo.seed, "train").problem(0)], "train")
    finally:
        worker.close()


def hidden() -> str:
    return build_task(config("data.task=guess").data, 0, "train").problem(0).answer


def wrong() -> str:
    return "1" if hidden() == "0" else "0"


def test_rows_go_on_until_they_are_right_cut_off_or_out_of_turns() -> None:
    right, miss = f"{hidden()}<end>", f"{wrong()}<end>"
    script = Script([right, "777", miss], [miss], [miss])
    rollout = guesses(script)
    assert script.asked == [3, 1, 1]
    assert [summary.reward for summary in rollout.summaries] == [1.0, 0.0, 0.0]
    assert [summary.truncated for summary in rollout.summaries] == [False, True, False]
    assert [len(summary.spans) for summary in rollout.summaries] == [1, 1, 3]
    assert [summary.response_length for summary in rollout.summaries] == [2, 3, 6]
    logs = rebuild_message_logs(rollout.columns[MESSAGE_LOGS], rollout.columns[INPUT_IDS])
    roles = ["user", "assistant", "environment", "assistant", "environment", "assistant"]
    assert [message["role"] for message in logs[2]] == roles
    assert [summary.versions for summary in rollout.summaries] == [
        ((7, 7),),
        ((7, 7),),
        ((7, 7),) * 3,
    ]
    assert (rollout.weight_version, rollout.end_version) == (7, 7)


@pytest.mark.parametrize("task", ["copy", "guess"])
def test_an_empty_response_is_a_failure_of_the_model(task: str) -> None:
    script = Script([f"{wrong()}<end>", "", f"{wrong()}<end>"])
    with pytest.raises(ModelFailure, match=r"turn 0 of '.*_g1' has 0 tokens"):
        guesses(script, f"data.task={task}")


def test_a_rollout_has_no_versions_of_tokens_unless_asked() -> None:
    assert set(collected(config()).columns.keys()) == set(ROLLOUT_FIELDS)


def test_only_the_policys_tokens_are_trained_and_carry_logprobs() -> None:
    miss = f"{wrong()}<end>"
    rollout = guesses(Script([miss] * 3, [miss] * 3, [miss] * 3))
    mask, logprobs = rollout.columns[TOKEN_MASK], rollout.columns[GENERATION_LOGPROBS]
    assert torch.equal(mask.bool(), logprobs != 0)
    for row, summary in enumerate(rollout.summaries):
        for start, stop in summary.spans:
            assert logprobs[row, start:stop].tolist() == [-1.0, -2.0]
            text = character_tokenizer().decode(rollout.columns[INPUT_IDS][row, start:stop])
            assert text == miss
        assert int(mask[row].sum()) == 6


def test_a_row_ends_where_no_further_turn_fits() -> None:
    miss = f"{wrong()}<end>"
    # 4 tokens of prompt, 2 of a turn, 4 of an answer: 10, and no 4 more fit 12
    rollout = guesses(Script([miss] * 3), "policy.max_total_sequence_length=12")
    assert rollout.columns[INPUT_LENGTHS].tolist() == [6, 6, 6]
    assert [summary.truncated for summary in rollout.summaries] == [False] * 3
