"""Generation of responses: one interface with three engines, transformers (default), vLLM, HTTP."""

import torch
from torch import nn

from rlconform.grpo.config import GenerationConfig, PolicyConfig
from rlconform.grpo.generation.base import (
    GenerationEngine,
    OnFinished,
    Prefix,
    Prompts,
    Responses,
    Sampling,
    ShouldStop,
    never_stop,
    row_seeds,
)
from rlconform.grpo.generation.http_engine import HTTPEngine
from rlconform.grpo.generation.transformers_engine import TransformersEngine
from rlconform.grpo.generation.vllm_engine import VLLMEngine
from rlconform.grpo.models import load_model

__all__ = [
    "GenerationEngine",
    "OnFinished",
    "Prefix",
    "Prompts",
    "Responses",
    "Sampling",
    "ShouldStop",
    "build_engine",
    "never_stop",
    "row_seeds",
]


def build_engine(
    config: GenerationConfig,
    policy: PolicyConfig,
    *,
    seed: int,
    device: str = "cpu",
    recompute_kv_cache: bool = False,
) -> GenerationEngine:
    """Create the engine of a ``generation:`` block on ``cpu`` or ``cuda``.

    A tiny model gets its weights from ``seed``. ``recompute_kv_cache`` concerns refits in the
    middle of a response, see ``TransformersEngine``; vLLM has none, and a server always does so.
    ``ConfigError`` if the engine isn't installed, or can't run this model on this device.
    """
    if config.http is not None and config.backend == "http":
        return HTTPEngine(config.http)
    if config.backend == "vllm":
        return VLLMEngine(config, policy, device=device)
    model = load_model(policy.model_name, precision=policy.precision, seed=seed)
    nn.Module.to(model, device=torch.device(device))
    return TransformersEngine(
        model,
        config.batch_size,
        recompute_kv_cache=recompute_kv_cache,
        record_routes=policy.router_replay.enabled,
    )
