"""A minimal configuration, and the same with some values changed."""

from __future__ import annotations

from typing import Any


def tree() -> dict[str, Any]:
    """A minimal configuration."""
    return {
        "policy": {
            "model_name": "tiny-llama",
            "max_total_sequence_length": 16,
            "optimizer": {"lr": 1e-3},
        },
        "grpo": {
            "num_prompts_per_step": 4,
            "num_generations_per_prompt": 8,
            "max_num_steps": 2,
            "seed": 0,
        },
        "data": {"task": "copy"},
        "generation": {"max_new_tokens": 4},
        "data_plane": {"enabled": False, "impl": "memory"},
    }


def changed(**sections: dict[str, Any]) -> dict[str, Any]:
    whole = tree()
    for name, values in sections.items():
        whole[name] = {**whole.get(name, {}), **values}
    return whole
