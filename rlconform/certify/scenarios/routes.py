"""Columns of routes for the checks of R3 and RANK: experts unique to each token of a rollout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlconform.grpo.router_replay.canaries import canary_routes
from rlconform.grpo.router_replay.route_format import RouteFormat

#: Of Qwen3-30B-A3B: 48 layers, 8 of 128 experts; and of a model with 512 experts.
BYTES = RouteFormat(layers=48, top_k=8, experts=128)
SHORTS = RouteFormat(layers=48, top_k=8, experts=512)


def route_rows(
    lengths: Sequence[int], route_format: RouteFormat, first: int = 0
) -> list[torch.Tensor]:
    """Make a row (j, L, K) of routes for each length; the last token of each has none."""
    rows = []
    for length in lengths:
        row = canary_routes(length, route_format, first)
        row[-1] = route_format.missing
        rows.append(row)
        first += length
    return rows
