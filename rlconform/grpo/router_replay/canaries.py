"""Canary routes: experts that are unique to each token, so that no wrong order goes unseen.

Wrong orders keep all shapes, and real routes of two tokens are often equal.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from rlconform.grpo.router_replay.route_format import RouteFormat


def canary_routes(tokens: int, route_format: RouteFormat, first: int = 0) -> Tensor:
    """Make the routes (tokens, L, K) of the canaries ``first``, ``first + 1``, ...

    With two layers or more, no two canaries are equal, and no canary has the same experts in two
    layers that follow each other. ``ValueError`` if there are not that many.
    """
    choices = list(
        itertools.islice(
            itertools.permutations(range(route_format.experts), route_format.top_k), 4096
        )
    )
    count = len(choices)
    if first + tokens > count * (count - 1):
        raise ValueError(f"expected at most {count * (count - 1)} canaries; got {first + tokens}")
    dealt = [
        [
            choices[(number + layer * (1 + number // count)) % count]
            for layer in range(route_format.layers)
        ]
        for number in range(first, first + tokens)
    ]
    shape = (tokens, route_format.layers, route_format.top_k)
    return torch.tensor(dealt, dtype=route_format.dtype).view(shape)
