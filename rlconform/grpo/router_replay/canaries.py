"""Canary routes: experts that are unique to each token, so that no wrong order goes unseen.

Wrong orders keep all shapes, and real routes of two tokens are often equal.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlconform.grpo.router_replay.route_format import RouteFormat


def canary_routes(tokens: int, route_format: RouteFormat, first: int = 0) -> Tensor:
    """Make the routes (tokens, L, K) of the canaries ``first``, ``first + 1``, ...

    With two layers or more and two experts or more per token, no two canaries are equal, and none
    has the same experts in two layers that follow each other. ``ValueError`` if there are not that
    many.
    """
    count = route_format.experts * max(1, route_format.experts - 1)
    if first + tokens > count * (count - 1):
        raise ValueError(f"expected at most {count * (count - 1)} canaries; got {first + tokens}")
    stride = next(n for n in range(int(0.618 * count) + 1, 2 * count) if math.gcd(n, count) == 1)
    dealt = [
        [
            _choice(route_format, (number + layer * (1 + number // count)) * stride % count)
            for layer in range(route_format.layers)
        ]
        for number in range(first, first + tokens)
    ]
    shape = (tokens, route_format.layers, route_format.top_k)
    return torch.tensor(dealt, dtype=route_format.dtype).view(shape)


def _choice(route_format: RouteFormat, number: int) -> list[int]:
    """Return K different experts; the first two tell the number."""
    experts = route_format.experts
    first = number % experts
    second = (first + 1 + number // experts) % experts
    rest = ((second - step) % experts for step in range(1, experts))
    others = [expert for expert in rest if expert != first]
    return [first, second, *others][: route_format.top_k]
