"""Tiny models of the real architectures, made in code: a configuration and seeded random weights.

tiny-llama       Llama: 2 layers, 4 heads over 2 key-value heads, tied to no other weights
tiny-qwen3-moe   Qwen3-MoE: the same size, 8 experts, 2 of them for each token
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3MoeConfig,
)

from rlconform.grpo.models.char_tokenizer import CHARACTERS, END, MARKERS, PAD

TINY_MODELS = ("tiny-llama", "tiny-qwen3-moe")
VOCABULARY = len(MARKERS) + len(CHARACTERS)

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.1,  # in so narrow a model the usual 0.02 learns nothing for 50 steps
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "eos_token_id": MARKERS.index(END),
    "pad_token_id": MARKERS.index(PAD),
}


def tiny_config(name: str) -> PreTrainedConfig:
    """The configuration of ``tiny-llama`` or ``tiny-qwen3-moe``.

    Raises:
        ValueError: Another name.
    """
    if name == "tiny-llama":
        return LlamaConfig(**_SIZES)
    if name == "tiny-qwen3-moe":
        return Qwen3MoeConfig(
            **_SIZES,
            moe_intermediate_size=64,
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            output_router_logits=False,  # no auxiliary loss
        )
    raise ValueError(f"no tiny model {name!r}; there are {', '.join(TINY_MODELS)}")


def tiny_model(name: str, seed: int) -> PreTrainedModel:
    """A tiny model in float32 on the CPU, its weights drawn from the seed.

    Attention is plain matrix products, the experts a plain loop: on a CPU both add up in one fixed
    order. torch's own generator is left as it was.

    Raises:
        ValueError: Another name.
    """
    config = tiny_config(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation="eager", experts_implementation="eager"
        )
    model.train(False)
    return model
