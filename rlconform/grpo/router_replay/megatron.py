"""``MegatronReplayer``: router replay by megatron-core's own hooks, for one rank of a policy.

    replayer = MegatronReplayer(route_format, local_layers, ...)        after the model is built
    for each micro-batch, in the order of the schedule:
        with replayer.forward(routes, order) as replayed:  the forward pass of this rank's stage
        with replayer.backward():                          its backward pass
    replayer.finish()                                      leaves nothing behind

``RouterReplay`` (megatron-core 0.16.1) has one instance per local router, in the order in which
they were built, and no layer number. ``set_target_indices`` also adds to a list for the backward
pass, even where none follows. That list is a queue: recomputed layers get the routes of their own
micro-batch if backward passes come in the order of forward passes, as in Megatron's schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.grpo.models import RowLayout, TokenOrder
from rlconform.grpo.router_replay.replayer import ReplayedPass
from rlconform.grpo.router_replay.route_format import RouteFormat, RouterReplayError

_MODULE = "megatron.core.transformer.moe.router_replay"


def check_megatron_config(config: Any, virtual_stages: int | None) -> None:
    """Raise ``ConfigError`` unless Megatron's options let routers be replayed.

    ``config`` is a ``TransformerConfig``; ``virtual_stages`` are those of a pipeline rank.
    """
    reasons = {
        "moe_enable_routing_replay must be true": not config.moe_enable_routing_replay,
        "moe_router_fusion bypasses replay: set it to false": bool(config.moe_router_fusion),
        "virtual pipeline stages mix the routers of several model chunks: use one per rank": (
            (virtual_stages or 1) > 1
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise ConfigError(f"policy.router_replay: {reason}")


class MegatronReplayer:
    """Drives the routers of this process; build the model first.

    Args:
        route_format: The format of the column, of the layers of all pipeline stages.
        local_layers: The column's layers that this rank has, in the order in which Megatron built
            them.
        layout: Whether Megatron gets padded (sequence first) or packed (THD) rows.
        tp_rank: This rank within its tensor-parallel group.
        sequence_parallel: Size of that group if the sequence is split over it, else 1.
        recomputes: Whether layers run again in the backward pass.

    ``RouterReplayError`` if the process has more or fewer routers than ``local_layers``: those of
    another model, or of none.
    """

    def __init__(
        self,
        route_format: RouteFormat,
        local_layers: Sequence[int],
        *,
        layout: RowLayout = "padded",
        tp_rank: int = 0,
        sequence_parallel: int = 1,
        recomputes: bool = False,
    ) -> None:
        module = import_module(_MODULE)
        self._routers: Any = module.RouterReplay
        self._actions: Any = module.RouterReplayAction
        self._format, self._layers = route_format, list(local_layers)
        self._layout: RowLayout = layout
        self._tp_rank, self._parts = tp_rank, sequence_parallel
        self._recomputes = recomputes
        self._used: list[list[Tensor]] = [[] for _ in self._layers]
        for router, used in zip(self._instances, self._used, strict=True):
            router.get_replay_topk = _watched(router.get_replay_topk, used)

    def check_routers(self) -> None:
        """Raise ``RouterReplayError`` unless there is one router per local layer."""
        count = len(self._routers.global_router_replay_instances)
        if count != len(self._layers):
            raise RouterReplayError(
                f"expected {len(self._layers)} routers, those of the layers {self._layers}; got "
                f"{count}: call RouterReplay.clear_global_router_replay_instances() before a model "
                f"is built, and build one model"
            )

    def order_of_rank(self, order: TokenOrder) -> TokenOrder:
        """Return the tokens of this rank, in the order of its routers.

        ``order`` is that of a micro-batch row by row. Megatron's padded layout is (S, B): token 0
        of every row, then token 1. Sequence parallelism splits the tokens by S.
        """
        place = torch.arange(len(order.row), device=order.row.device)
        if self._layout == "padded":
            place = place.view(int(order.row.max()) + 1, -1).T.flatten()
        if len(place) % self._parts:
            raise RouterReplayError(
                f"expected tokens that sequence parallelism can split into {self._parts} parts; "
                f"got {len(place)}: set policy.make_sequence_length_divisible_by"
            )
        own = place.chunk(self._parts)[self._tp_rank if self._parts > 1 else 0]
        return TokenOrder(order.row[own], order.position[own], order.valid[own])

    def routes_of_rank(self, routes: Tensor, own: TokenOrder) -> Tensor:
        """Return the routes (T, L, K) int64 of this rank's tokens.

        ``routes`` are a micro-batch's (B, S, L, K). Where no experts are known, the result has
        valid ones, because Megatron gathers their scores: only padding and the last token of a
        row may be so, see ``RouteFormat.check_rows``.
        """
        arranged = own.arrange(routes, self._format.missing).long()
        slots = torch.arange(len(arranged), device=arranged.device)[:, None, None]
        experts = torch.arange(self._format.top_k, device=arranged.device)
        anywhere = ((slots + experts) % self._format.experts).expand_as(arranged)
        return torch.where(arranged == self._format.missing, anywhere, arranged)

    @contextmanager
    def forward(self, routes: Tensor, order: TokenOrder) -> Iterator[ReplayedPass]:
        """Replay a micro-batch's routes in the block, which runs its forward pass on this stage.

        Without gradients, or without recomputation, nothing is left for a backward pass.

        Raises:
            RouterReplayError: A router did not run exactly once.
        """
        own = self.routes_of_rank(routes, self.order_of_rank(order))
        keeps = self._recomputes and torch.is_grad_enabled()
        self._routers.set_replay_data([own[:, layer] for layer in self._layers])
        replayed = ReplayedPass(own, len(self._layers))
        try:
            with self._counted(self._actions.REPLAY_FORWARD, replayed):
                yield replayed
        finally:
            for router in self._instances:
                router.target_topk_idx = None
                if not keeps:
                    router.replay_backward_list.clear()

    @contextmanager
    def backward(self) -> Iterator[ReplayedPass]:
        """Replay the routes of the oldest micro-batch in the block, which runs its backward pass.

        Raises:
            RouterReplayError: A router that recomputes did not run exactly once.
        """
        replayed = ReplayedPass(torch.empty(0), len(self._layers))
        if not self._recomputes:
            yield replayed
            return
        with self._counted(self._actions.REPLAY_BACKWARD, replayed):
            yield replayed

    def finish(self) -> None:
        """Forget all routes at the end of a step.

        ``RouterReplayError`` if some were left: a later pass would have replayed them.
        """
        waiting = [len(router.replay_backward_list) for router in self._instances]
        self._routers.clear_global_indices()
        self._routers.clear_global_router_replay_action()
        if any(waiting):
            raise RouterReplayError(
                f"expected no routes to be left after a step; got those of {waiting} micro-batches "
                f"by router"
            )

    @contextmanager
    def _counted(self, action: Any, replayed: ReplayedPass) -> Iterator[None]:
        """Set an action in the block, and count the routers that took it."""
        for used in self._used:
            used.clear()
        self._routers.set_global_router_replay_action(action)
        try:
            yield
        finally:
            self._routers.clear_global_router_replay_action()
            for mine, used in zip(replayed.used, self._used, strict=True):
                mine.extend(used)
        counts = [len(used) for used in self._used]
        if counts != [1] * len(self._layers):
            raise RouterReplayError(
                f"expected each of {len(self._layers)} routers to replay once for a micro-batch; "
                f"got {counts} by layer"
            )

    @property
    def _instances(self) -> list[Any]:
        self.check_routers()
        instances: list[Any] = self._routers.global_router_replay_instances
        return instances


def _watched(
    choose: Callable[..., tuple[Tensor, Tensor]], used: list[Tensor]
) -> Callable[..., tuple[Tensor, Tensor]]:
    """Wrap a router's choice so that ``used`` gets the experts of each call."""

    def watched(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        scores, chosen = choose(*args, **kwargs)
        used.append(chosen)
        return scores, chosen

    return watched
