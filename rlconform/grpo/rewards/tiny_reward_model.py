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
makes it linear. The seed draws small random weights, which are added; they change a score by some
hundredths.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForSequenceClassification

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

_SIZE_OF_ONE = 100.0  # other features are 0 or 1
_SHARP = 40.0  # difference of attention scores that leaves nothing to other tokens; slope of gates
_NOISE = 1e-3


def tiny_reward_model(seed: int) -> LlamaForSequenceClassification:
    """Create the model in float32 on the CPU; torch's global generator is left unchanged."""
    assert CHARACTERS.startswith("0123456789")
    config = LlamaConfig(**TINY_SIZES, num_labels=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForSequenceClassification._from_config(config, attn_implementation="eager")
        for name, weight in model.named_parameters():
            if "norm" not in name:
                torch.nn.init.normal_(weight, std=_NOISE)
    with torch.no_grad():
        _set_weights(model)
    model.train(False)
    return model


def _set_weights(model: LlamaForSequenceClassification) -> None:
    """Add the weights of the docstring of this module to those that are there."""
    # ``unit`` makes a feature of 1 from one that RMSNorm divided; ``one`` makes 1 from ONE.
    unit, one = _SIZE_OF_ONE / model.config.hidden_size**0.5, 1 / model.config.hidden_size**0.5
    embedding = model.model.embed_tokens.weight
    embedding[:, :VOCABULARY] += torch.eye(VOCABULARY)
    embedding[:, _ONE] += _SIZE_OF_ONE

    first, second = model.model.layers
    head_dim = model.config.head_dim
    _look_back(first.self_attn, head=0, tokens=1, one=one)
    first.self_attn.v_proj.weight[0, _ASSISTANT] += unit
    first.self_attn.o_proj.weight[_AFTER_ASSISTANT, 0] += 1
    _look_back(first.self_attn, head=2, tokens=3, one=one)
    for number, token in enumerate(_DIGITS):
        first.self_attn.v_proj.weight[head_dim + number, token] += unit
        first.self_attn.o_proj.weight[_DIGIT_BEFORE + number, 2 * head_dim + number] += 1
        _both(first.mlp, number, (token, _AFTER_ASSISTANT), unit, one)
        first.mlp.up_proj.weight[number, _DIGIT_BEFORE + number] += unit
        first.mlp.down_proj.weight[_FIRST, number] += 2 / _SHARP

    # The pair of dimensions that RoPE turns slowest compares contents at any distance.
    slowest = head_dim // 2 - 1
    second.self_attn.q_proj.weight[slowest, _ONE] += one * _SHARP
    second.self_attn.k_proj.weight[slowest, _FIRST] += unit * head_dim**0.5
    second.self_attn.v_proj.weight[0, _FIRST] += unit
    second.self_attn.o_proj.weight[_FOUND, 0] += 1
    _look_back(second.self_attn, head=2, tokens=1, one=one)
    second.self_attn.v_proj.weight[head_dim, _FIRST] += unit
    second.self_attn.o_proj.weight[_BEFORE, 2 * head_dim] += 1
    _both(second.mlp, 0, (_BEFORE, _END), unit, one)
    second.mlp.up_proj.weight[0, _ONE] += one
    second.mlp.down_proj.weight[_EXACT, 0] += 2 / _SHARP

    model.score.weight[0, [_FOUND, _EXACT]] += unit / 2


def _look_back(attention: torch.nn.Module, *, head: int, tokens: int, one: float) -> None:
    """Let a head attend to the token that is ``tokens`` back.

    The score of a token n back is sum(cos(f * (n - tokens))) over the four fastest frequencies f,
    which is largest at n = ``tokens``. There is one key-value head for two heads.
    """
    config = attention.config
    pairs = config.head_dim // 2
    frequencies = config.rope_parameters["rope_theta"] ** (-torch.arange(4) / pairs)
    query, key = head * config.head_dim, head // 2 * config.head_dim
    # RoPE turns the query by f * position; turning it back by f * tokens moves the maximum.
    angle: Tensor = -frequencies * tokens
    sharp = 2 * _SHARP * config.head_dim**0.5
    attention.q_proj.weight[query : query + 4, _ONE] += one * sharp * angle.cos()
    attention.q_proj.weight[query + pairs : query + pairs + 4, _ONE] += one * sharp * angle.sin()
    attention.k_proj.weight[key : key + 4, _ONE] += one


def _both(
    mlp: torch.nn.Module, neuron: int, features: tuple[int, int], unit: float, one: float
) -> None:
    """Let a neuron's gate be ``_SHARP / 2`` if both features are 1, and 0 if one of them is 0."""
    for feature in features:
        mlp.gate_proj.weight[neuron, feature] += unit * _SHARP
    mlp.gate_proj.weight[neuron, _ONE] -= one * _SHARP * 1.5
