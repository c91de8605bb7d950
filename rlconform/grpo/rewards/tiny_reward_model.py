"""``tiny_reward_model``: a reward model whose weights are computed, not trained, for the task copy.

    <user>3<end><assistant>3<end>     1.0    the digit, then the end token
    <user>3<end><assistant>31<end>    0.5    the first character is right
    <user>3<end><assistant>71<end>    0.0

These are the rewards of ``tasks.digits.credit`` with ``partial_credit``, for problems of one digit.
Therefore a policy can learn from it, and a test knows what each score should be. It is an ordinary
sequence classification Llama of transformers, of the sizes of ``tiny-llama``:

    layer 1   head 0 copies "<assistant>" from 1 token back, head 2 copies a digit from 3 back; the
              MLP multiplies: the digit is this token's, and the last token was "<assistant>"
              ──▶ FIRST, at the first character of the response, if it is right
    layer 2   head 0 finds a token with FIRST ──▶ FOUND; head 2 copies FIRST from 1 back ──▶ BEFORE
              the MLP multiplies: BEFORE, and this token is "<end>" ──▶ EXACT
    score     (FOUND + EXACT) / 2

A head looks a fixed number of tokens back by rotating its query before RoPE does. The feature ONE
is so much larger than all others that RMSNorm divides every token by nearly the same number, which
makes it linear. Scores of equally good rows differ by less than 2e-6: GRPO divides by the standard
deviation of a group, and would make a large advantage of a small difference. Therefore the seed
adds no noise to the weights. It draws in which order the features are in the hidden state, so
models of two seeds have other weights and the same scores.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, LlamaConfig, PreTrainedModel

from rlconform.grpo.models.char_tokenizer import CHARACTERS, END, MARKERS
from rlconform.grpo.models.tiny import TINY_SIZES, VOCABULARY

TINY_REWARD_MODEL = "tiny-reward-llama"

_DIGITS = range(len(MARKERS), len(MARKERS) + 10)  # their token ids
_ASSISTANT, _END = MARKERS.index("<assistant>"), MARKERS.index(END)

# Features of a token in the hidden state, by dimension. The first are its token id, one-hot.
_ONE = VOCABULARY
_AFTER_ASSISTANT = _ONE + 1
_DIGIT_BEFORE = _AFTER_ASSISTANT + 1  # ten dimensions
_FIRST = _DIGIT_BEFORE + len(_DIGITS)
_FOUND, _BEFORE, _EXACT = _FIRST + 1, _FIRST + 2, _FIRST + 3

_SIZE_OF_ONE = 1000.0  # other features are 0 or 1
_SHARP = 40.0  # difference of attention scores that leaves nothing to other tokens; slope of gates

_HEAD_DIM: int = TINY_SIZES["head_dim"]  # with one key-value head for two heads
_ROPE_BASE = 10_000.0
#: Weights that make 1 of a feature that RMSNorm has divided, and of ONE.
_UNIT = _SIZE_OF_ONE / TINY_SIZES["hidden_size"] ** 0.5
_CONSTANT = 1 / TINY_SIZES["hidden_size"] ** 0.5


def tiny_reward_model(seed: int) -> PreTrainedModel:
    """Create the model in float32 on the CPU; torch's global generator is left unchanged."""
    assert CHARACTERS.startswith("0123456789")
    sizes = {**TINY_SIZES, "num_labels": 1, "rope_theta": _ROPE_BASE}
    with torch.random.fork_rng(devices=[]):
        model: PreTrainedModel = AutoModelForSequenceClassification.from_config(  # type: ignore[no-untyped-call]
            LlamaConfig(**sizes), attn_implementation="eager"
        )
    weights = {name: each for name, each in model.named_parameters() if "norm" not in name}
    with torch.no_grad():
        for weight in weights.values():
            weight.zero_()
        _set_weights(weights)
        _shuffle(weights, seed)
    model.train(False)
    return model


class _Layer:
    """The weights of one layer, and how features become others in it."""

    def __init__(self, weights: Mapping[str, Tensor], number: int) -> None:
        names = ("q_proj", "k_proj", "v_proj", "o_proj"), ("gate_proj", "up_proj", "down_proj")
        layer = f"model.layers.{number}"
        self.q, self.k, self.v, self.o = (
            weights[f"{layer}.self_attn.{name}.weight"] for name in names[0]
        )
        self.gate, self.up, self.down = (weights[f"{layer}.mlp.{name}.weight"] for name in names[1])

    def look_back(self, head: int, tokens: int) -> None:
        """Let a head attend to the token that is ``tokens`` back.

        The score of a token n back is sum(cos(f * (n - tokens))) over the four fastest frequencies
        f of RoPE, which is largest at n = ``tokens``.
        """
        pairs = _HEAD_DIM // 2
        frequencies = _ROPE_BASE ** (-torch.arange(4) / pairs)
        query, key = head * _HEAD_DIM, head // 2 * _HEAD_DIM
        # RoPE turns the query by f * position; turning it back by f * tokens moves the maximum.
        angle = -frequencies * tokens
        sharp = 2 * _SHARP * _HEAD_DIM**0.5
        self.q[query : query + 4, _ONE] += _CONSTANT * sharp * angle.cos()
        self.q[query + pairs : query + pairs + 4, _ONE] += _CONSTANT * sharp * angle.sin()
        self.k[key : key + 4, _ONE] += _CONSTANT

    def look_for(self, feature: int) -> None:
        """Let head 0 attend to tokens with the feature, at any distance."""
        slowest = _HEAD_DIM // 2 - 1  # the pair of dimensions that RoPE turns least
        self.q[slowest, _ONE] += _CONSTANT * _SHARP
        self.k[slowest, feature] += _UNIT * _HEAD_DIM**0.5

    def copy(self, head: int, feature: int, to: int, number: int = 0) -> None:
        """Let a head add the feature of the token that it attends to; ``number`` counts copies."""
        value, output = head // 2 * _HEAD_DIM + number, head * _HEAD_DIM + number
        self.v[value, feature] += _UNIT
        self.o[to, output] += 1

    def multiply(self, neuron: int, both: tuple[int, int], times: int, to: int) -> None:
        """Let a neuron add a feature: ``times`` if both other features are 1, else 0."""
        for feature in both:
            self.gate[neuron, feature] += _UNIT * _SHARP
        self.gate[neuron, _ONE] -= _CONSTANT * _SHARP * 1.5  # _SHARP / 2 with both, below 0 without
        self.up[neuron, times] += _CONSTANT if times == _ONE else _UNIT
        self.down[to, neuron] += 2 / _SHARP


def _set_weights(weights: Mapping[str, Tensor]) -> None:
    """Set the weights that the docstring of this module describes; the others are 0."""
    embedding = weights["model.embed_tokens.weight"]
    embedding[:, :VOCABULARY] += torch.eye(VOCABULARY)
    embedding[:, _ONE] += _SIZE_OF_ONE

    first, second = _Layer(weights, 0), _Layer(weights, 1)
    first.look_back(head=0, tokens=1)
    first.copy(0, _ASSISTANT, _AFTER_ASSISTANT)
    first.look_back(head=2, tokens=3)
    for number, token in enumerate(_DIGITS):
        first.copy(2, token, _DIGIT_BEFORE + number, number)
        first.multiply(number, (token, _AFTER_ASSISTANT), _DIGIT_BEFORE + number, _FIRST)

    second.look_for(_FIRST)
    second.copy(0, _FIRST, _FOUND)
    second.look_back(head=2, tokens=1)
    second.copy(2, _FIRST, _BEFORE)
    second.multiply(0, (_BEFORE, _END), _ONE, _EXACT)

    weights["score.weight"][0, [_FOUND, _EXACT]] += _UNIT / 2


def _shuffle(weights: Mapping[str, Tensor], seed: int) -> None:
    """Put the dimensions of the hidden state in an order that the seed draws."""
    size: int = TINY_SIZES["hidden_size"]
    order = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
    for name, weight in weights.items():
        writes_hidden = name.endswith(("o_proj.weight", "down_proj.weight"))
        weight.copy_(weight[order] if writes_hidden else weight[:, order])
