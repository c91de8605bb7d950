"""Routes that are unique to each token and layer, so that no wrong order goes unseen."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from rlconform.grpo.router_replay.route_format import RouteFormat

#: Of ``tiny-qwen3-moe``.
TINY = RouteFormat(layers=2, top_k=2, experts=8)


def canary_routes(rows: int, width: int, route_format: RouteFormat = TINY) -> Tensor:
    """Make routes (rows, width, L, K); two tokens in a row never have the same in any layer.

    All ordered choices of K experts are dealt one after the other over layers and tokens.
    """
    choices = list(itertools.permutations(range(route_format.experts), route_format.top_k))
    count = rows * width * route_format.layers
    dealt = [choices[number * 5 % len(choices)] for number in range(count)]
    shape = (rows, width, route_format.layers, route_format.top_k)
    return torch.tensor(dealt).view(shape).to(route_format.dtype)
