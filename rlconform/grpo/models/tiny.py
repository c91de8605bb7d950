"""Tiny models of real architectures, created in code with random weights from a seed.

tiny-llama       Llama: 2 layers, 4 heads with 2 key-value heads, untied embeddings
tiny-qwen3-moe   Qwen3-MoE: the same size, 8 experts, 2 of them active per token
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

TINY_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "initializer_range": 0.1,  # with the usual 0.02 a model this narrow learns nothing for 50 steps
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "attention_dropout": 0.0,
    "bos_token_id": None,
    "eos_token_id": MARKERS.index(END),
    "pad_token_id": MARKERS.index(PAD),
}


def tiny_config(name: str) -> PreTrainedConfig:
    """Return the sizes of a tiny model; ``ValueError`` for another name."""
    if name == "tiny-llama":
        return LlamaConfig(**TINY_SIZES)
    if name == "tiny-qwen3-moe":
        return Qwen3MoeConfig(
            **TINY_SIZES,
            moe_intermediate_size=64,
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            output_router_logits=False,  # no auxiliary loss
        )
    raise ValueError(f"no tiny model {name!r}; there are {', '.join(TINY_MODELS)}")


def tiny_model(name: str, seed: int) -> PreTrainedModel:
    """Create a tiny model in float32 on the CPU with weights from the seed.

    It uses the eager implementations of attention and experts, which add in a fixed order on a CPU.
    torch's global generator is left unchanged. ``ValueError`` for another name.
    """
    config = tiny_config(name)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: PreTrainedModel = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, attn_implementation="eager", experts_implementation="eager"
        )
    model.train(False)
    return model
