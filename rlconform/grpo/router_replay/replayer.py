"""``RouteReplayer``: makes the routers of a policy choose the experts that generation chose.

    with replayer.replaying(routes, passes=1):   of one micro-batch, in the model's token order
        loss = ... forward ...
        loss.backward()                          recomputed layers replay the same routes: passes=2

The routes are those of one micro-batch and are dropped at the end of the block, also after an
error, so no pass can replay those of another. A pass outside of a block raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError
from rlconform.grpo.router_replay.routers import RouterOutput, choose, find_routers, format_of


class ReplayedPass:
    """The routes of one micro-batch, and what its routers used."""

    def __init__(self, routes: Tensor, layers: int) -> None:
        self.routes = routes  # (T, L, K)
        #: Ids and positions (T,) int64 of the tokens that the model really got.
        self.token_ids = self.positions = torch.empty(0, dtype=torch.int64)
        #: By layer, the experts (T, K) int64 of each call of its router.
        self.used: list[list[Tensor]] = [[] for _ in range(layers)]

    @property
    def calls(self) -> int:
        """The most calls of a router."""
        return max(map(len, self.used))

    def used_in(self, call: int) -> tuple[int, Tensor]:
        """Return the first layer, and the experts (T, L', K) int64 of it and those after it.

        They are those that the routers used in their call of this number; all layers have one
        unless a pass was cut off by an error.
        """
        layers = [layer for layer, calls in enumerate(self.used) if len(calls) > call]
        whole = range(layers[0], layers[-1] + 1)
        return layers[0], torch.stack([self.used[layer][call] for layer in whole], dim=1)


class RouteReplayer:
    """Replays routes in a model's routers by hooks, which stay.

    ``ConfigError`` if the model has no routers.
    """

    def __init__(self, model: nn.Module) -> None:
        routers = find_routers(model)
        self.format: RouteFormat = format_of(routers)
        self._current: ReplayedPass | None = None
        model.register_forward_pre_hook(self._note_tokens, with_kwargs=True)
        for layer, router in enumerate(routers):
            router.register_forward_hook(partial(self._replay, layer))

    @contextmanager
    def replaying(self, routes: Tensor, passes: int = 1) -> Iterator[ReplayedPass]:
        """Replay routes (T, L, K) of T tokens in the block, in which each router runs ``passes``.

        Tokens whose experts are missing get those that the router chooses.

        Raises:
            RouterReplayError: Another block is open, or a router ran more or fewer times.
        """
        if self._current is not None:
            raise RouterReplayError("the routes of another micro-batch are still being replayed")
        self._current = replayed = ReplayedPass(routes, self.format.layers)
        try:
            yield replayed
        finally:
            self._current = None
        counts = [len(calls) for calls in replayed.used]
        if counts != [passes] * self.format.layers:
            raise RouterReplayError(
                f"expected each of {self.format.layers} routers to replay {passes} times for a "
                f"micro-batch; got {counts} by layer"
            )

    def _note_tokens(self, _model: nn.Module, _inputs: Any, named: dict[str, Any]) -> None:
        if self._current is not None:
            ids, positions = named["input_ids"], named["position_ids"]
            self._current.token_ids = ids.flatten()
            self._current.positions = positions.expand_as(ids).flatten()

    def _replay(
        self, layer: int, router: nn.Module, _inputs: Any, output: RouterOutput
    ) -> RouterOutput:
        if self._current is None:
            raise RouterReplayError(
                "a pass of the policy has no routes to replay: set them with replaying()"
            )
        chosen = self._experts(self._current, layer).to(output[2].device)
        if len(chosen) != len(output[2]):
            raise RouterReplayError(
                f"expected routes of the {len(output[2])} tokens that the router got; got "
                f"{len(chosen)}"
            )
        known = ~self.format.is_missing(chosen)
        replayed = choose(router, output, chosen.long(), known)
        self._current.used[layer].append(replayed[2])
        return replayed

    def _experts(self, replayed: ReplayedPass, layer: int) -> Tensor:
        """Return the experts (T, K) that a layer replays."""
        return replayed.routes[:, layer]
