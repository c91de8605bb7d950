"""Generation has one seed per row, the trainer's logprobs, and weight versions."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from transformers import PreTrainedModel

from rlconform.contract import ConfigError
from rlconform.grpo.config import GenerationConfig, OptimizerConfig, PolicyConfig
from rlconform.grpo.generation import (
    GenerationEngine,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    build_engine,
    row_seeds,
)
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.generation.vllm_engine import read_completions
from rlconform.grpo.models import TINY_MODELS, tiny_model, token_logprobs, weights_digest

PAD, END = 0, 1
ROWS = [torch.tensor(row) for row in ([4, 8, 9], [4, 7], [4, 10, 11, 12, 13], [5])]
SEEDS = [11, 12, 13, 14]
SAMPLING = Sampling(6, (END,))
CLOSE = {"atol": 2e-5, "rtol": 2e-5}


@pytest.fixture(scope="module", params=TINY_MODELS)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param, seed=0)


@pytest.fixture(scope="module")
def engine(model: PreTrainedModel) -> GenerationEngine:
    return TransformersEngine(model)


def prompts() -> Prompts:
    return Prompts.of(ROWS, PAD)


def policy(model_name: str = "tiny-llama") -> PolicyConfig:
    return PolicyConfig(
        model_name=model_name, max_total_sequence_length=16, optimizer=OptimizerConfig(lr=1e-3)
    )


def same(one: Responses, other: Responses) -> bool:
    pairs = zip(
        [*one.token_ids, *one.logprobs, one.truncated],
        [*other.token_ids, *other.logprobs, other.truncated],
        strict=True,
    )
    return all(torch.equal(mine, its) for mine, its in pairs)


def test_prompts_are_padded_on_the_right() -> None:
    batch = prompts()
    assert batch.input_ids.tolist() == [
        [4, 8, 9, 0, 0],
        [4, 7, 0, 0, 0],
        [4, 10, 11, 12, 13],
        [5, 0, 0, 0, 0],
    ]
    assert batch.lengths.tolist() == [3, 2, 5, 1]


@pytest.mark.parametrize(
    ("ids", "lengths", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64), "input_ids must be"),
        (torch.zeros(2, 3), torch.ones(2, dtype=torch.int64), "input_ids must be"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.ones(3, dtype=torch.int64), "lengths must be"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 3]), "1 to 3 tokens"),
        (torch.zeros(2, 3, dtype=torch.int64), torch.tensor([1, 4]), "1 to 3 tokens"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(
    ids: torch.Tensor, lengths: torch.Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        Prompts(ids, lengths)


def test_no_prompts_are_refused() -> None:
    with pytest.raises(ValueError, match="no prompts"):
        Prompts.of([], PAD)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="greedy=True"):
        Sampling(4, (END,), temperature)


def test_the_same_seeds_give_the_same_bytes(engine: GenerationEngine) -> None:
    one, other = (engine.generate(prompts(), SEEDS, SAMPLING) for _ in range(2))
    assert same(one, other)


def test_a_rows_tokens_are_its_own_seeds_whoever_is_beside_it(engine: GenerationEngine) -> None:
    whole = engine.generate(prompts(), SEEDS, SAMPLING)
    order = [2, 0, 3, 1]
    shuffled = engine.generate(
        Prompts.of([ROWS[row] for row in order], PAD), [SEEDS[row] for row in order], SAMPLING
    )
    for place, row in enumerate(order):
        alone = engine.generate(Prompts.of([ROWS[row]], PAD), [SEEDS[row]], SAMPLING)
        assert torch.equal(whole.token_ids[row], shuffled.token_ids[place])
        assert torch.equal(whole.token_ids[row], alone.token_ids[0])
        torch.testing.assert_close(whole.logprobs[row], alone.logprobs[0], **CLOSE)


def test_other_seeds_draw_other_tokens(engine: GenerationEngine) -> None:
    drawn = [
        engine.generate(prompts(), [seed + row for row in range(4)], SAMPLING).token_ids
        for seed in (0, 100)
    ]
    assert any(not torch.equal(one, other) for one, other in zip(*drawn, strict=True))


@pytest.mark.parametrize(
    "sampling", [SAMPLING, Sampling(6, (END,), 0.6), Sampling(6, (END,), 0.6, greedy=True)]
)
@torch.no_grad()
def test_a_trainers_forward_pass_finds_the_same_logprobs(
    model: PreTrainedModel, engine: GenerationEngine, sampling: Sampling
) -> None:
    responses = engine.generate(prompts(), SEEDS, sampling)
    rows = [torch.cat(pair) for pair in zip(ROWS, responses.token_ids, strict=True)]
    batch = Prompts.of(rows, PAD)
    for layout in ("padded", "packed"):
        logprobs = token_logprobs(
            model,
            batch.input_ids,
            batch.lengths,
            temperature=sampling.logprob_temperature,
            layout=layout,
        )
        for row, (prompt, drawn) in enumerate(zip(ROWS, responses.logprobs, strict=True)):
            assert drawn.dtype == torch.float32
            response = logprobs[row, len(prompt) : len(prompt) + len(drawn)]
            torch.testing.assert_close(response, drawn, **CLOSE)


def test_a_response_ends_with_its_first_stop_token(engine: GenerationEngine) -> None:
    whole = engine.generate(prompts(), SEEDS, Sampling(6, ()))
    assert all(len(row) == 6 for row in whole.token_ids)
    assert bool(whole.truncated.all())
    stop = int(whole.token_ids[0][2])
    cut = engine.generate(prompts(), SEEDS, Sampling(6, (stop,)))
    for before, after, truncated in zip(
        whole.token_ids, cut.token_ids, cut.truncated.tolist(), strict=True
    ):
        found = (before == stop).nonzero().flatten().tolist()
        assert truncated == (not found)
        assert torch.equal(after, before[: found[0] + 1] if found else before)
    assert [len(row) for row in cut.logprobs] == [len(row) for row in cut.token_ids]


def test_greedy_takes_the_likeliest_token_whatever_the_seed(engine: GenerationEngine) -> None:
    greedy = Sampling(6, (END,), greedy=True)
    one, other = (engine.generate(prompts(), seeds, greedy) for seeds in (SEEDS, [0, 0, 0, 0]))
    assert same(one, other)


@torch.no_grad()
def test_tokens_are_drawn_as_often_as_their_probabilities_say() -> None:
    model = tiny_model("tiny-llama", seed=0)
    draws, temperature = 4000, 0.5
    logits = model(input_ids=ROWS[0][None]).logits[0, -1].double()
    expected = torch.softmax(logits / temperature, dim=0)
    responses = TransformersEngine(model).generate(
        Prompts.of([ROWS[0]] * draws, PAD), list(range(draws)), Sampling(1, (END,), temperature)
    )
    counts = torch.bincount(torch.cat(responses.token_ids), minlength=len(expected))
    # chi-squared of 20 degrees of freedom exceeds 45 once in a thousand; the seeds are fixed
    likely = expected * draws >= 5
    statistic = ((counts - expected * draws).square() / (expected * draws))[likely].sum()
    assert float(statistic) < 45


@pytest.mark.parametrize("batch_size", [1, 3])
def test_rows_may_be_generated_a_few_at_a_time(batch_size: int) -> None:
    whole = TransformersEngine(tiny_model("tiny-llama", seed=0))
    parts = TransformersEngine(tiny_model("tiny-llama", seed=0), batch_size)
    one, other = (each.generate(prompts(), SEEDS, SAMPLING) for each in (whole, parts))
    for mine, its in zip(one.token_ids, other.token_ids, strict=True):
        assert torch.equal(mine, its)


def test_every_prompt_has_a_seed(engine: GenerationEngine) -> None:
    with pytest.raises(ValueError, match="3 seeds for 4 prompts"):
        engine.generate(prompts(), SEEDS[:3], SAMPLING)


def test_refit_takes_a_copy_of_the_weights_and_their_version() -> None:
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0))
    weights = tiny_model("tiny-llama", seed=1).state_dict()
    expected = TransformersEngine(tiny_model("tiny-llama", seed=1)).generate(
        prompts(), SEEDS, SAMPLING
    )
    assert engine.refit(weights, version=5) == weights_digest(weights)
    for weight in weights.values():
        weight.zero_()
    got = engine.generate(prompts(), SEEDS, SAMPLING)
    assert same(got, expected)
    assert got.weight_version == engine.weight_version == 5


def test_weights_that_do_not_fit_change_nothing() -> None:
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0))
    before = engine.generate(prompts(), SEEDS, SAMPLING)
    weights = tiny_model("tiny-llama", seed=1).state_dict()
    name = "lm_head.weight"
    unfit = [
        {key: weight for key, weight in weights.items() if key != name},
        {**weights, "more": torch.zeros(1)},
        {**weights, name: weights[name][:-1]},
    ]
    for wrong in unfit:
        with pytest.raises(ValueError, match="weight"):
            engine.refit(wrong, version=1)
    assert engine.weight_version == 0
    assert same(engine.generate(prompts(), SEEDS, SAMPLING), before)


def test_weights_never_grow_older() -> None:
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0))
    weights = tiny_model("tiny-llama", seed=1).state_dict()
    engine.refit(weights, version=3)
    engine.refit(weights, version=3)
    with pytest.raises(ValueError, match="or later"):
        engine.refit(weights, version=2)


def test_responses_of_several_weight_versions_have_no_single_one() -> None:
    def response(*versions: int) -> Responses:
        ones = torch.ones(len(versions))
        whole = torch.tensor([True])
        return Responses([ones.long()], [-ones], [torch.tensor(versions)], ~whole, whole)

    joined = Responses.joined([response(1), response(1, 1)])
    assert joined.weight_version == 1
    assert [len(row) for row in joined.token_ids] == [1, 2]
    assert joined.finished.tolist() == [True, True]
    with pytest.raises(ValueError, match=r"one weight version; got \[1, 2\]"):
        _ = Responses.joined([response(1), response(2)]).weight_version
    with pytest.raises(ValueError, match=r"one weight version; got \[\]"):
        _ = response().weight_version


def test_a_rows_seed_is_made_of_run_row_and_turn() -> None:
    ids = ["train-0_g0", "train-0_g1", "train-1_g0"]
    every = [row_seeds(seed, ids, turn) for seed, turn in itertools.product((0, 1), (0, 1))]
    flat = [seed for seeds in every for seed in seeds]
    assert len(set(flat)) == 12
    assert all(0 <= seed < 2**63 for seed in flat)
    assert row_seeds(0, ids[1:]) == row_seeds(0, ids)[1:]


def test_the_factory_builds_the_default_engine() -> None:
    engine = build_engine(GenerationConfig(max_new_tokens=6), policy(), seed=0)
    expected = TransformersEngine(tiny_model("tiny-llama", seed=0))
    assert same(*(each.generate(prompts(), SEEDS, SAMPLING) for each in (engine, expected)))
    engine.close()
    engine.close()


def test_an_engine_that_is_missing_is_said_at_the_start() -> None:
    config = GenerationConfig(backend="vllm", max_new_tokens=6)
    with pytest.raises(ConfigError, match=r"generation\.backend"):
        build_engine(config, policy(), seed=0)


def test_vllms_completions_are_read_as_responses() -> None:
    def completion(tokens: list[int], reason: str) -> SimpleNamespace:
        logprobs = [
            {token: SimpleNamespace(logprob=-float(token)), 99: SimpleNamespace(logprob=-0.5)}
            for token in tokens
        ]
        return SimpleNamespace(token_ids=tokens, logprobs=logprobs, finish_reason=reason)

    had = Prefix(torch.tensor([8]), torch.tensor([-8.0]), torch.tensor([6]))
    responses = read_completions(
        [completion([3, 1], "stop"), completion([4], "length")], [Prefix.empty(), had], 7
    )
    assert [row.tolist() for row in responses.token_ids] == [[3, 1], [8, 4]]
    assert [row.tolist() for row in responses.logprobs] == [[-3.0, -1.0], [-8.0, -4.0]]
    assert [row.tolist() for row in responses.versions] == [[7, 7], [6, 7]]
    assert responses.truncated.tolist() == [False, True]
    assert responses.finished.tolist() == [True, True]
