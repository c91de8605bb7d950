"""Replayers that use wrong routes: of another token, layer, micro-batch or pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlconform.grpo.models import TokenOrder
from rlconform.grpo.router_replay.replayer import ReplayedPass, RouteReplayer
from rlconform.grpo.router_replay.routers import RouterOutput
from rlconform.grpo.workers.policy_replay import PolicyReplay
from rlconform.mutants.call import State
from rlconform.mutants.router_replay.defect import replay_defect

_PACKED = "policy.packing.mode=sequence_packing"


def _fitted(routes: Tensor, tokens: int) -> Tensor:
    """Repeat or cut routes (T, L, K) to so many tokens."""
    return routes.repeat(-(-tokens // len(routes)), 1, 1)[:tokens]


@replay_defect(
    "those of the token before for token 0 in layer 0 in the routers",
    seen="slime a93386e51 (SL-08)",
)
class RoutesShiftedByOne(RouteReplayer):
    """Gives each token the experts of the token before."""

    def _experts(self, replayed: ReplayedPass, layer: int) -> Tensor:
        return super()._experts(replayed, layer).roll(1, dims=0)


@replay_defect("those of another layer", seen="verl#7106", options=_PACKED)
class RoutesOfNextLayer(RouteReplayer):
    """Gives each layer the experts of the next one, as after a dense layer that isn't skipped."""

    def _experts(self, replayed: ReplayedPass, layer: int) -> Tensor:
        return super()._experts(replayed, (layer + 1) % self.format.layers)


@replay_defect("in layer 1 in the routers", seen="verl (pipeline stages)")
class FirstLayerOnly(RouteReplayer):
    """Gives every layer the experts of the first, as on a stage that counts layers from 0."""

    def _experts(self, replayed: ReplayedPass, layer: int) -> Tensor:
        return super()._experts(replayed, 0)


@replay_defect("micro-batch 1: expected the experts that were produced", seen="Megatron-LM")
class StaleRoutes(RouteReplayer):
    """Keeps the routes of the first micro-batch of a pass for all later ones."""

    _first = State(list[Tensor])

    @contextmanager
    def replaying(self, routes: Tensor, passes: int = 1) -> Iterator[ReplayedPass]:
        self._first.append(routes)
        with super().replaying(_fitted(self._first[0], len(routes)), passes) as replayed:
            yield replayed


@replay_defect("call 0 of train on rank dp=0", seen="Megatron-LM router_replay")
class LogprobRoutesLeftForTraining(RouteReplayer):
    """Queues the routes of every pass, but takes some only with gradients: training gets old ones.

    A logprob pass replays its own routes and leaves them for the next pass with gradients.
    """

    _queue = State(list[Tensor])

    @contextmanager
    def replaying(self, routes: Tensor, passes: int = 1) -> Iterator[ReplayedPass]:
        self._queue.append(routes.flip(0) if not torch.is_grad_enabled() else routes)
        if torch.is_grad_enabled():
            routes = _fitted(self._queue.pop(0), len(routes))
        with super().replaying(routes, passes) as replayed:
            yield replayed


@replay_defect("when recomputed", seen="verl", options="policy.activation_checkpointing=true")
class RecomputedFreely(RouteReplayer):
    """Replays in the forward pass only, so recomputed layers choose experts by themselves."""

    def _experts(self, replayed: ReplayedPass, layer: int) -> Tensor:
        experts = super()._experts(replayed, layer)
        again = bool(replayed.used[layer])
        return torch.full_like(experts, self.format.missing) if again else experts


@replay_defect("call 0 of train", seen="NeMo-RL#3327")
class TrainingNotReplayed(PolicyReplay):
    """Replays in logprob passes, and leaves training to the routers."""

    @contextmanager
    def microbatch(
        self, part: TensorDict, sample_ids: Sequence[str] | None, *, backward: bool
    ) -> Iterator[None]:
        missing = torch.full_like(part["routed_experts"], self.replayer.format.missing)
        own = part.clone().set("routed_experts", missing) if backward else part
        with super().microbatch(own, sample_ids, backward=backward):
            yield


@replay_defect("got another token in its place", seen="miles#3146 (BSHD and THD)")
class TokensOrderedSequenceFirst(PolicyReplay):
    """Arranges routes by position and then by row; the model gets them row by row."""

    def _order(self, part: TensorDict) -> TokenOrder:
        order = super()._order(part)
        place = (order.position * int(order.row.max() + 1) + order.row).argsort()
        return TokenOrder(*(each[place] for each in order))


@replay_defect(
    "got another token in its place",
    seen="verl#7106 (unpadded rows)",
    options=f"{_PACKED} policy.packing.sequence_length_round=8",
)
class PaddingForgottenInPackedRows(PolicyReplay):
    """Lays packed routes end to end without the padding between rows, and fills up at the end."""

    def _order(self, part: TensorDict) -> TokenOrder:
        order = super()._order(part)
        place = torch.argsort((~order.valid).int(), stable=True)
        return TokenOrder(*(each[place] for each in order))


@replay_defect("in the routers", seen="Megatron-LM router fusion")
class ScoredByOwnExperts(RouteReplayer):
    """Replays the first layer's experts, and leaves the second to a fused kernel without replay."""

    def _replay(
        self, layer: int, router: nn.Module, inputs: Any, output: RouterOutput
    ) -> RouterOutput:
        replayed = super()._replay(layer, router, inputs, output)
        if layer == 0 or self._current is None:
            return replayed
        self._current.used[layer][-1] = output[2]
        return output


@replay_defect("in the routers", seen="torchtitan, sequence parallel")
class SecondHalfMissing(RouteReplayer):
    """Replays half of the tokens, as a rank that takes another rank's part for its own."""

    def _experts(self, replayed: ReplayedPass, layer: int) -> Tensor:
        experts = super()._experts(replayed, layer).clone()
        experts[len(experts) // 2 :] = self.format.missing
        return experts
