"""Tiny models, loading of models, and logprobs of padded and packed rows."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedModel

from rlconform.contract import ConfigError
from rlconform.grpo.models import (
    TINY_MODELS,
    character_tokenizer,
    load_model,
    load_tokenizer,
    tiny_model,
    token_logprobs,
)
from rlconform.grpo.models.checkpoint_weight_names import as_checkpoint
from rlconform.grpo.models.logprobs import RowLayout

LENGTHS = [5, 1, 9, 3, 12]
LAYOUTS: list[RowLayout] = ["padded", "packed"]
CLOSE = {"atol": 2e-5, "rtol": 2e-5}


@pytest.fixture(scope="module", params=TINY_MODELS)
def model(request: pytest.FixtureRequest) -> PreTrainedModel:
    return tiny_model(request.param, seed=0)


def batch(width: int = 14, vocabulary: int = 21) -> Tensor:
    """(5, width) ids; values after a row's length are random and must not change results."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(vocabulary, (len(LENGTHS), width), generator=generator)


def naive(model: PreTrainedModel, ids: Tensor, temperature: float = 1.0) -> Tensor:
    """Compute logprobs token by token in float64."""
    expected = torch.zeros(ids.shape, dtype=torch.float64)
    for row, length in enumerate(LENGTHS):
        for place in range(1, length):
            logits = model(input_ids=ids[row : row + 1, :place]).logits[0, -1].double()
            probabilities = torch.softmax(logits / temperature, dim=0)
            expected[row, place] = probabilities[ids[row, place]].log()
    return expected


@pytest.mark.parametrize("name", TINY_MODELS)
def test_a_seed_decides_the_weights(name: str) -> None:
    one, same, other = (tiny_model(name, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[key], same[key]) for key in one)
    assert not all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", TINY_MODELS)
def test_torchs_generator_is_left_alone(name: str) -> None:
    before = torch.random.get_rng_state()
    tiny_model(name, seed=1)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@torch.no_grad()
def test_logprobs_are_those_of_each_row_alone(
    model: PreTrainedModel, layout: RowLayout, temperature: float
) -> None:
    ids = batch()
    logprobs = token_logprobs(model, ids, LENGTHS, temperature=temperature, layout=layout)
    assert logprobs.dtype == torch.float32
    assert logprobs.shape == ids.shape
    torch.testing.assert_close(logprobs.double(), naive(model, ids, temperature), **CLOSE)


@torch.no_grad()
def test_first_tokens_and_padding_have_exactly_zero(model: PreTrainedModel) -> None:
    for layout in LAYOUTS:
        logprobs = token_logprobs(model, batch(), LENGTHS, layout=layout)
        counted = torch.zeros(logprobs.shape, dtype=torch.bool)
        for row, length in enumerate(LENGTHS):
            counted[row, 1:length] = True
        assert bool((logprobs[~counted] == 0).all())
        assert bool((logprobs[counted] < 0).all())


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_padding_is_never_looked_at(model: PreTrainedModel, layout: RowLayout) -> None:
    ids = batch()
    others = ids.clone()
    for row, length in enumerate(LENGTHS):
        others[row, length:] = 0
    one, other = (token_logprobs(model, x, LENGTHS, layout=layout) for x in (ids, others))
    torch.testing.assert_close(one, other, **CLOSE)


@torch.no_grad()
def test_packed_rows_do_not_see_each_other(model: PreTrainedModel) -> None:
    ids = batch()
    others = ids.clone()
    others[:2] = (others[:2] + 1) % 21
    one, other = (token_logprobs(model, x, LENGTHS, layout="packed") for x in (ids, others))
    torch.testing.assert_close(one[2:], other[2:], **CLOSE)
    assert not torch.allclose(one[0], other[0], atol=1e-2)


@pytest.mark.parametrize("pad_multiple", [1, 4, 16])
@torch.no_grad()
def test_rounding_rows_up_changes_nothing(model: PreTrainedModel, pad_multiple: int) -> None:
    rounded = token_logprobs(model, batch(), LENGTHS, layout="packed", pad_multiple=pad_multiple)
    torch.testing.assert_close(rounded, token_logprobs(model, batch(), LENGTHS), **CLOSE)


@torch.no_grad()
def test_sdpa_keeps_packed_rows_apart_as_eager_does() -> None:
    model = tiny_model("tiny-llama", seed=0)
    eager = token_logprobs(model, batch(), LENGTHS, layout="packed")
    model.set_attn_implementation("sdpa")
    for layout in LAYOUTS:
        torch.testing.assert_close(
            token_logprobs(model, batch(), LENGTHS, layout=layout), eager, **CLOSE
        )


def test_both_layouts_have_the_same_gradients(model: PreTrainedModel) -> None:
    gradients = []
    for layout in LAYOUTS:
        model.zero_grad()
        token_logprobs(model, batch(), LENGTHS, temperature=0.9, layout=layout).sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters()})
    assert all(gradient is not None for gradient in gradients[0].values())
    torch.testing.assert_close(*gradients, atol=2e-4, rtol=2e-4)
    model.zero_grad()


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_the_same_batch_gives_the_same_bytes(model: PreTrainedModel, layout: RowLayout) -> None:
    one, other = (token_logprobs(model, batch(), LENGTHS, layout=layout) for _ in range(2))
    assert torch.equal(one, other)


@torch.no_grad()
def test_the_router_drops_no_token_however_many_choose_one_expert() -> None:
    model = tiny_model("tiny-qwen3-moe", seed=0)
    alone = token_logprobs(model, batch()[2:3], LENGTHS[2:3])
    repeated = batch()[2:3].repeat(64, 1)  # all 64 rows select the same experts
    together = token_logprobs(model, repeated, LENGTHS[2:3] * 64)
    torch.testing.assert_close(together, alone.expand_as(together), **CLOSE)


def test_no_auxiliary_loss_of_the_router() -> None:
    model = tiny_model("tiny-qwen3-moe", seed=0)
    output = model(input_ids=batch(), labels=batch())
    assert getattr(output, "aux_loss", None) is None


@pytest.mark.parametrize(
    ("ids", "lengths", "temperature", "message"),
    [
        (batch()[0], [3], 1.0, r"must be \(B, T\)"),
        (batch(), [3], 1.0, "1 lengths for 5 rows"),
        (batch(), [0, 1, 1, 1, 1], 1.0, "1 to 14 tokens"),
        (batch(), [15, 1, 1, 1, 1], 1.0, "1 to 14 tokens"),
        (batch(), LENGTHS, 0.0, "above 0"),
        (batch(), LENGTHS, float("nan"), "above 0"),
    ],
)
def test_what_does_not_fit_is_refused(
    ids: Tensor, lengths: list[int], temperature: float, message: str
) -> None:
    model = tiny_model("tiny-llama", seed=0)
    with pytest.raises(ValueError, match=message):
        token_logprobs(model, ids, lengths, temperature=temperature)


def test_attention_that_would_mix_packed_rows_is_refused() -> None:
    model = tiny_model("tiny-llama", seed=0)
    model.config._attn_implementation_internal = "flex_attention"
    with pytest.raises(ValueError, match="flex_attention"):
        token_logprobs(model, batch(), LENGTHS, layout="packed")


@pytest.mark.parametrize("name", TINY_MODELS)
@torch.no_grad()
def test_a_saved_model_loads_from_its_folder(name: str, tmp_path: Path) -> None:
    saved = tiny_model(name, seed=4)
    saved.save_pretrained(tmp_path)
    character_tokenizer().save_pretrained(tmp_path)
    loaded = load_model(str(tmp_path))
    assert not loaded.training
    for key, weight in saved.state_dict().items():
        assert torch.equal(loaded.state_dict()[key], weight)
    tokenizer = load_tokenizer(str(tmp_path))
    assert tokenizer.get_vocab() == character_tokenizer().get_vocab()
    assert tokenizer.chat_template == character_tokenizer().chat_template


@pytest.mark.parametrize("name", TINY_MODELS)
def test_checkpoint_names_are_those_on_disk(name: str, tmp_path: Path) -> None:
    saved = tiny_model(name, seed=4)
    saved.save_pretrained(tmp_path)
    on_disk = load_file(tmp_path / "model.safetensors")
    named = dict(as_checkpoint(saved.state_dict()))
    assert named.keys() == on_disk.keys()
    assert all(torch.equal(named[key], on_disk[key]) for key in on_disk)


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bfloat16", torch.bfloat16), ("float32", torch.float32)]
)
def test_precision_is_that_of_the_weights(precision: str, dtype: torch.dtype) -> None:
    model = load_model("tiny-llama", precision=precision)
    assert {weight.dtype for weight in model.parameters()} == {dtype}


@pytest.mark.parametrize("layout", LAYOUTS)
@torch.no_grad()
def test_logprobs_of_a_bfloat16_model_are_float32(layout: RowLayout) -> None:
    model = load_model("tiny-llama", precision="bfloat16")
    exact = token_logprobs(load_model("tiny-llama"), batch(), LENGTHS)
    logprobs = token_logprobs(model, batch(), LENGTHS, layout=layout)
    assert logprobs.dtype == torch.float32
    torch.testing.assert_close(logprobs, exact, atol=0.1, rtol=0.1)


def test_a_name_that_is_no_folder_is_never_downloaded(tmp_path: Path) -> None:
    for load in (load_model, load_tokenizer):
        with pytest.raises(ConfigError, match="are not downloaded"):
            load("meta-llama/Llama-3.1-8B-Instruct")
        with pytest.raises(ConfigError, match="can't load a") as caught:
            load(str(tmp_path))
        assert "\n" not in str(caught.value)


def test_a_tokenizer_without_a_template_is_refused(tmp_path: Path) -> None:
    bare = character_tokenizer()
    bare.chat_template = None
    bare.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="no chat template"):
        load_tokenizer(str(tmp_path))


def test_an_unknown_tiny_model_is_answered_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="tiny-llama, tiny-qwen3-moe"):
        tiny_model("tiny-gpt", seed=0)
