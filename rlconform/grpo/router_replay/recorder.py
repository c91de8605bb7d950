"""``RouteRecorder``: collects the experts that a model's routers choose in a forward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError
from rlconform.grpo.router_replay.routers import RouterOutput, find_routers, format_of

T = TypeVar("T")


class RouteRecorder:
    """Records a model's routers by hooks, which stay; ``ConfigError`` if the model has none."""

    def __init__(self, model: nn.Module) -> None:
        routers = find_routers(model)
        self.format: RouteFormat = format_of(routers)
        self._chosen: list[list[Tensor]] = [[] for _ in routers]
        for layer, router in enumerate(routers):
            router.register_forward_hook(partial(self._record, layer))

    def _record(self, layer: int, _router: nn.Module, _inputs: Any, output: RouterOutput) -> None:
        self._chosen[layer].append(output[2])

    def record(self, forward: Callable[[], T]) -> tuple[T, Tensor]:
        """Call ``forward``, one pass of T tokens; return its result and the routes (T, L, K).

        ``RouterReplayError`` if a router did not run exactly once.
        """
        for calls in self._chosen:
            calls.clear()
        result = forward()
        counts = [len(calls) for calls in self._chosen]
        if counts != [1] * self.format.layers:
            raise RouterReplayError(
                f"expected each of {self.format.layers} routers to run once in a forward pass; got "
                f"{counts} runs by layer"
            )
        routes = torch.stack([calls.pop() for calls in self._chosen], dim=1)
        return result, routes.to(self.format.dtype)
