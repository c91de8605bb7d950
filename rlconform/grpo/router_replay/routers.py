"""The routers of a mixture-of-experts model of transformers, and their scores of given experts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeTopKRouter

from rlconform.contract import ConfigError
from rlconform.grpo.router_replay.route_format import RouteFormat

#: What a router returns: logits (T, E), scores (T, K), and the experts chosen (T, K) int64.
RouterOutput = tuple[Tensor, Tensor, Tensor]


def find_routers(model: nn.Module) -> list[nn.Module]:
    """Return the model's routers from the first layer to the last.

    ``ConfigError`` if it has none, or routers that are not known.
    """
    routers: list[nn.Module] = [
        module for module in model.modules() if isinstance(module, Qwen3MoeTopKRouter)
    ]
    if not routers:
        raise ConfigError(
            "policy.router_replay needs a Qwen3-MoE model: this one has no such routers; set "
            "policy.router_replay.enabled: false"
        )
    return routers


def format_of(routers: list[nn.Module]) -> RouteFormat:
    """Return the format of the routes of routers that are all alike."""
    first: Any = routers[0]
    return RouteFormat(len(routers), int(first.top_k), int(first.num_experts))


def choose(router: nn.Module, output: RouterOutput, experts: Tensor, known: Tensor) -> RouterOutput:
    """Return the router's output with these experts (T, K) int64 where they are ``known`` (T,).

    The scores are those that the router itself would give them: gradients reach its weights.
    """
    of_router: Any = router
    logits, _, own = output
    chosen = torch.where(known[:, None], experts, own)
    probabilities = torch.softmax(logits, dim=-1, dtype=torch.float)
    scores = probabilities.gather(1, chosen)
    if of_router.norm_topk_prob:
        scores = scores / scores.sum(dim=-1, keepdim=True)
    return logits, scores.to(logits.dtype), chosen
