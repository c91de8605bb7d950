"""``build_engine``: creates the engine of a ``generation:`` block and imports only that one."""

from __future__ import annotations

import torch
from torch import nn

from rlconform.grpo.config import GenerationConfig, PolicyConfig
from rlconform.grpo.generation.base import GenerationEngine


def build_engine(
    config: GenerationConfig, policy: PolicyConfig, *, seed: int, device: str = "cpu"
) -> GenerationEngine:
    """Create the engine.

    Args:
        config: The ``generation:`` block.
        policy: The model to generate with.
        seed: Seed of a tiny model's weights, see ``load_model``.
        device: ``cpu`` or ``cuda``.

    Raises:
        ConfigError: The engine isn't installed, or can't run this model on this device.
    """
    if config.backend == "vllm":
        from rlconform.grpo.generation.vllm_engine import VLLMEngine  # noqa: PLC0415

        return VLLMEngine(config, policy, device=device)
    from rlconform.grpo.generation.transformers_engine import TransformersEngine  # noqa: PLC0415
    from rlconform.grpo.models import load_model  # noqa: PLC0415

    model = load_model(policy.model_name, precision=policy.precision, seed=seed)
    nn.Module.to(model, device=torch.device(device))
    return TransformersEngine(model, batch_size=config.batch_size)
