"""Generation token by token: cut and continued responses, refits between tokens, several threads.

``should_stop`` is called between two tokens in the generating thread, so a test decides there what
happens before token k.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedModel

from rlconform.grpo.failures import ModelFailure
from rlconform.grpo.generation import Prefix, Prompts, Responses, Sampling
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.models import TINY_MODELS, tiny_model, token_logprobs, weights_digest

PAD, END = 0, 1
ROWS = [torch.tensor(row) for row in ([4, 8, 9], [4, 7], [4, 10, 11, 12, 13], [5])]
SEEDS = [11, 12, 13, 14]
MAX = 6
#: Stop tokens that some of the rows reach early, so that rows end at different tokens.
SAMPLING = Sampling(MAX, (END, 8, 16))
#: Every response has ``MAX`` tokens.
ENDLESS = Sampling(MAX, ())
CLOSE = {"atol": 2e-5, "rtol": 2e-5}


@pytest.fixture(scope="module", params=TINY_MODELS)
def engine(request: pytest.FixtureRequest) -> TransformersEngine:
    return TransformersEngine(tiny_model(request.param, seed=0))


def other_weights(seed: int = 1) -> PreTrainedModel:
    return tiny_model("tiny-llama", seed)


def prompts(rows: Sequence[torch.Tensor] = ROWS) -> Prompts:
    return Prompts.of(rows, PAD)


def before_token(number: int, action: Callable[[], object]) -> Callable[[], bool]:
    """A ``should_stop`` that acts before token ``number``, from 0; it stops if that is true."""
    calls = iter(range(1000))
    return lambda: bool(action()) if next(calls) == number else False


def stop_before(number: int) -> Callable[[], bool]:
    return before_token(number, lambda: True)


def continued(engine: TransformersEngine, last: Responses, cut: int | None) -> Responses:
    """Go on with the unfinished rows, and stop again before token ``cut``."""
    rows = (~last.finished).nonzero().flatten().tolist()
    rest = engine.generate(
        prompts([ROWS[row] for row in rows]),
        [SEEDS[row] for row in rows],
        SAMPLING,
        prefixes=[last.prefix(row) for row in rows],
        should_stop=stop_before(1000 if cut is None else cut),
    )
    place = {row: index for index, row in enumerate(rows)}

    def merged(old: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [new[place[row]] if row in place else value for row, value in enumerate(old)]

    return Responses(
        merged(last.token_ids, rest.token_ids),
        merged(last.logprobs, rest.logprobs),
        merged(last.versions, rest.versions),
        torch.stack(merged(list(last.truncated), list(rest.truncated))),
        torch.stack(merged(list(last.finished), list(rest.finished))),
    )


def assert_same(one: Responses, other: Responses) -> None:
    """The same tokens, versions and ends, and the same logprobs up to rounding."""
    for mine, its in zip(one.token_ids, other.token_ids, strict=True):
        assert torch.equal(mine, its)
    for mine, its in zip(one.versions, other.versions, strict=True):
        assert torch.equal(mine, its)
    for mine, its in zip(one.logprobs, other.logprobs, strict=True):
        torch.testing.assert_close(mine, its, **CLOSE)
    assert torch.equal(one.truncated, other.truncated)
    assert torch.equal(one.finished, other.finished)


def assert_bits(one: Responses, other: Responses) -> None:
    assert_same(one, other)
    for mine, its in zip(one.logprobs, other.logprobs, strict=True):
        assert torch.equal(mine, its)


# -- cut and continued ---------------------------------------------------------------------------


@pytest.mark.parametrize("cut", range(MAX + 2))
def test_a_cut_keeps_the_tokens_so_far(engine: TransformersEngine, cut: int) -> None:
    whole = engine.generate(prompts(), SEEDS, SAMPLING)
    lengths = [len(row) for row in whole.token_ids]
    assert len(set(lengths)) == 4  # rows end at different tokens
    assert max(lengths) == MAX
    part = engine.generate(prompts(), SEEDS, SAMPLING, should_stop=stop_before(cut))
    for row, length in enumerate(lengths):
        kept = min(cut, length)
        assert torch.equal(part.token_ids[row], whole.token_ids[row][:kept])
        assert torch.equal(part.logprobs[row], whole.logprobs[row][:kept])
        assert part.versions[row].tolist() == [0] * kept
    assert part.finished.tolist() == [length <= cut for length in lengths]
    # A row that was cut is not one that reached the token limit.
    assert torch.equal(part.truncated, whole.truncated & part.finished)


@settings(deadline=None, max_examples=25)
@given(cuts=st.lists(st.integers(0, 3), max_size=4), batch_size=st.sampled_from([None, 1, 3]))
def test_responses_that_go_on_have_the_tokens_of_uninterrupted_ones(
    cuts: list[int], batch_size: int | None
) -> None:
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0), batch_size)
    whole = engine.generate(prompts(), SEEDS, SAMPLING)
    part = engine.generate(prompts(), SEEDS, SAMPLING, should_stop=stop_before(2))
    for cut in [*cuts, None]:
        if not bool(part.finished.all()):
            part = continued(engine, part, cut)
    assert_same(part, whole)


@settings(deadline=None, max_examples=25)
@given(had=st.lists(st.integers(0, MAX - 1), min_size=4, max_size=4), greedy=st.booleans())
def test_rows_of_one_batch_go_on_from_different_tokens(had: list[int], greedy: bool) -> None:
    engine = TransformersEngine(tiny_model("tiny-qwen3-moe", seed=0))
    sampling = Sampling(MAX, (), greedy=greedy)
    whole = engine.generate(prompts(), SEEDS, sampling)
    prefixes = [
        Prefix(whole.token_ids[row][:k], whole.logprobs[row][:k], whole.versions[row][:k])
        for row, k in enumerate(had)
    ]
    assert_same(engine.generate(prompts(), SEEDS, sampling, prefixes=prefixes), whole)


def test_a_prefix_that_is_a_whole_response_is_refused(engine: TransformersEngine) -> None:
    def prefix(*ids: int) -> Prefix:
        tokens = torch.tensor(ids)
        return Prefix(tokens, -torch.ones(len(ids)), torch.zeros_like(tokens))

    for whole in (prefix(8, END), prefix(*[8] * MAX)):
        with pytest.raises(ValueError, match="prefix 0 is a whole response"):
            engine.generate(prompts(ROWS[:1]), SEEDS[:1], SAMPLING, prefixes=[whole])
    with pytest.raises(ValueError, match="2 prefixes for 1 prompts"):
        engine.generate(prompts(ROWS[:1]), SEEDS[:1], SAMPLING, prefixes=[prefix(8)] * 2)
    with pytest.raises(ValueError, match=r"must be \(k,\)"):
        Prefix(torch.tensor([8]), torch.tensor([-1.0, -1.0]), torch.tensor([0]))


def test_logits_that_are_not_finite_are_a_failure_of_the_model() -> None:
    broken = other_weights().state_dict()
    broken["lm_head.weight"] = torch.full_like(broken["lm_head.weight"], float("nan"))
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0))
    for sampling in (SAMPLING, Sampling(MAX, (END,), greedy=True)):
        engine.generate(prompts(), SEEDS, sampling)
    engine.refit(broken, 1)
    for sampling in (SAMPLING, Sampling(MAX, (END,), greedy=True)):
        with pytest.raises(ModelFailure, match=r"rows \[0, 1, 2, 3\] of 4 have logits"):
            engine.generate(prompts(), SEEDS, sampling)


# -- refits between tokens -----------------------------------------------------------------------


def refitted(number: int, *, recompute: bool) -> tuple[Responses, Responses]:
    """Endless responses without a refit, and with one before token ``number``."""
    before = TransformersEngine(tiny_model("tiny-llama", seed=0)).generate(
        prompts(), SEEDS, ENDLESS
    )
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0), recompute_kv_cache=recompute)
    weights = other_weights().state_dict()
    digests: list[str] = []
    refit = before_token(number, lambda: digests.append(engine.refit(weights, 4)))
    after = engine.generate(prompts(), SEEDS, ENDLESS, should_stop=refit)
    assert digests == [weights_digest(weights)]
    return before, after


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("number", range(MAX))
def test_versions_step_where_the_refit_happened(number: int, recompute: bool) -> None:
    before, after = refitted(number, recompute=recompute)
    for old, new in zip(before.token_ids, after.token_ids, strict=True):
        assert torch.equal(old[:number], new[:number])
    assert [row.tolist() for row in after.versions] == [[0] * number + [4] * (MAX - number)] * 4
    if number:
        with pytest.raises(ValueError, match="one weight version"):
            _ = after.weight_version
    for old, new in zip(before.logprobs, after.logprobs, strict=True):
        assert torch.equal(old[:number], new[:number])
        assert not torch.equal(old[number], new[number])


@pytest.mark.parametrize("number", range(1, MAX))
def test_a_recomputed_cache_gives_the_new_weights_logprobs(number: int) -> None:
    """After the refit the new weights alone explain the logprobs; a stale cache does not fit."""
    for recompute in (True, False):
        _, after = refitted(number, recompute=recompute)
        rows = [torch.cat(pair) for pair in zip(ROWS, after.token_ids, strict=True)]
        whole = Prompts.of(rows, PAD)
        with torch.no_grad():
            by_new = token_logprobs(other_weights(), whole.input_ids, whole.lengths)
        fits = [
            torch.allclose(
                logprobs[number:], by_new[row, len(ROWS[row]) + number : len(rows[row])], **CLOSE
            )
            for row, logprobs in enumerate(after.logprobs)
        ]
        assert fits == [recompute] * 4


def test_going_on_after_a_refit_is_like_a_recomputed_cache() -> None:
    _, expected = refitted(3, recompute=True)
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0))
    part = engine.generate(prompts(), SEEDS, ENDLESS, should_stop=stop_before(3))
    engine.refit(other_weights().state_dict(), 4)
    prefixes = [part.prefix(row) for row in range(4)]
    assert_same(engine.generate(prompts(), SEEDS, ENDLESS, prefixes=prefixes), expected)


# -- several threads -----------------------------------------------------------------------------


def test_threads_that_generate_at_once_give_the_bits_of_each_alone(
    engine: TransformersEngine,
) -> None:
    batches = [(ROWS[:2], SEEDS[:2]), (ROWS[2:], SEEDS[2:]), (ROWS, SEEDS)]
    alone = [engine.generate(prompts(rows), seeds, ENDLESS) for rows, seeds in batches]
    together = threading.Barrier(len(batches), timeout=60)

    def generate(rows: Sequence[torch.Tensor], seeds: Sequence[int]) -> Responses:
        # All threads make token k before any makes token k + 1.
        return engine.generate(
            prompts(rows), seeds, ENDLESS, should_stop=lambda: together.wait() < 0
        )

    with ThreadPoolExecutor(len(batches)) as pool:
        results = list(pool.map(generate, *zip(*batches, strict=True)))
    for one, other in zip(results, alone, strict=True):
        assert_bits(one, other)


def test_a_refit_in_another_thread_changes_two_generations_between_tokens() -> None:
    engine = TransformersEngine(tiny_model("tiny-llama", seed=0), recompute_kv_cache=True)
    _, expected = refitted(2, recompute=True)
    reached, go_on = threading.Barrier(3, timeout=60), threading.Event()

    def pause() -> bool:
        reached.wait()
        return not go_on.wait(60)

    def generate() -> Responses:
        return engine.generate(prompts(), SEEDS, ENDLESS, should_stop=before_token(2, pause))

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(generate) for _ in range(2)]
        reached.wait()
        engine.refit(other_weights().state_dict(), 4)
        go_on.set()
        for call in calls:
            assert_bits(call.result(60), expected)
