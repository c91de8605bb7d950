"""The column ``routed_experts`` of a rollout, from the routes that the engine recorded by turn.

    turn 1   prompt and response but its last token    ─┐
    turn 2   the same, that token, the observation,      ├──▶ row (S, L, K)
             and response but its last token           ─┘

An engine never runs a forward pass over the last token of a response. The prefill of the next turn
does so, as over the tokens of an observation. Only the last token of a row has no known experts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError


def joined_routes(earlier: Tensor | None, later: Tensor) -> Tensor:
    """Add to the routes of a row's first tokens those of a later pass over the same tokens.

    A token keeps the routes of its first pass: the logprob of the token after it comes from there.
    """
    if earlier is None:
        return later
    return torch.cat([earlier, later[len(earlier) :]])


def routes_column(
    rows: Sequence[Iterable[Tensor | None]],
    lengths: Sequence[int],
    width: int,
    route_format: RouteFormat,
) -> Tensor:
    """Build the column (N, width, L, K) of N rows.

    Args:
        rows: For each row the routes (t, L, K) of its first t tokens, by turn.
        lengths: Tokens of each row.
        width: S, at least the longest row.
        route_format: The format of the routes.

    Raises:
        RouterReplayError: A turn has no routes, or a row lacks those of a token before its last.
    """
    column = route_format.blank(len(rows), width)
    for number, (turns, length) in enumerate(zip(rows, lengths, strict=True)):
        routes: Tensor | None = None
        for turn in turns:
            if turn is None:
                raise RouterReplayError(f"row {number} has a turn whose experts weren't recorded")
            routes = joined_routes(routes, turn)
        known = 0 if routes is None else len(routes)
        if routes is None or known < length - 1:
            raise RouterReplayError(
                f"expected experts of the first {length - 1} tokens of row {number}; got {known}"
            )
        column[number, : length - 1] = routes[: length - 1]
    return column
