"""``MegatronReplay``: router replay in the micro-batches of Megatron's schedules.

    with replay.microbatches(sample_ids) as around:     the schedule runs all micro-batches of rows
        around(part, given)                             forward pass of each: replays its routes
        hook on the model's output ── backward pass begins ──▶ recomputed layers replay them again
        end of autograd's pass ◀── their number is right, or RouterReplayError

Under pipeline parallelism the backward pass of a micro-batch comes after later forward passes, but
in the same order. Autograd itself tells when it begins and ends, so no schedule is changed. A
micro-batch is traced after its last pass.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from megatron.core import parallel_state
from megatron.core.transformer.moe.router_replay import RouterReplay
from torch import Tensor, nn

from rlconform.contract import ConfigError
from rlconform.contract.fields import INPUT_LENGTHS, ROUTED_EXPERTS
from rlconform.grpo.config.megatron import MegatronConfig
from rlconform.grpo.models import RowLayout, TokenOrder
from rlconform.grpo.router_replay.megatron import MegatronReplayer, check_megatron_config
from rlconform.grpo.router_replay.replayer import ReplayedPass
from rlconform.grpo.router_replay.route_format import RouteFormat
from rlconform.grpo.workers.megatron.passes import AroundForward, Microbatch, ModelInput
from rlconform.grpo.workers.policy_replay import RankReplay


def prepare_replay(config: Any, megatron: MegatronConfig) -> RouteFormat:
    """Forget the routers of an earlier model; return the format of the routes of the next one.

    ``config`` is its ``TransformerConfig``. ``ConfigError`` if the model has no routers, or its
    options bypass replay.
    """
    if not config.num_moe_experts:
        raise ConfigError(
            "policy.router_replay needs a Qwen3-MoE model: this one has no routers; set "
            "policy.router_replay.enabled: false"
        )
    if megatron.context_parallel_size > 1:
        raise ConfigError(
            "policy.router_replay: expected policy.megatron_cfg.context_parallel_size 1, as routes "
            f"aren't split over ranks; got {megatron.context_parallel_size}"
        )
    check_megatron_config(config, megatron.virtual_pipeline_model_parallel_size)
    RouterReplay.clear_global_router_replay_instances()
    return RouteFormat(config.num_layers, config.moe_router_topk, config.num_moe_experts)


class _Waiting(NamedTuple):
    """A micro-batch whose backward pass is still to come."""

    ids: Sequence[str] | None
    order: TokenOrder
    replayed: ReplayedPass


class MegatronReplay(RankReplay):
    """Replays ``routed_experts`` in this rank's part of a model.

    Args:
        model: A ``GPTModel``, built after ``prepare_replay``.
        route_format: The format of the routes of the whole model.
        layers: The numbers of this pipeline stage's layers, from 0.
        layout: Whether rows are padded or packed.
        device: The model's device.
    """

    def __init__(
        self,
        model: nn.Module,
        route_format: RouteFormat,
        layers: Sequence[int],
        layout: RowLayout,
        device: torch.device,
    ) -> None:
        super().__init__(route_format)
        options: Any = model.config
        self._device = device
        self._first_layer = layers[0]
        self._tp_rank: int = parallel_state.get_tensor_model_parallel_rank()
        self._parts = options.tensor_model_parallel_size if options.sequence_parallel else 1
        self._recomputes = options.recompute_granularity is not None
        self.replayer = MegatronReplayer(
            route_format,
            layers,
            layout=layout,
            tp_rank=self._tp_rank,
            sequence_parallel=self._parts,
            recomputes=self._recomputes,
        )
        self._given_ids = torch.empty(0, dtype=torch.int64)
        self._waiting: deque[_Waiting] = deque()
        self._backward = ExitStack()
        model.register_forward_pre_hook(self._note_ids)
        if self._recomputes:
            model.register_forward_hook(self._note_backward)

    @contextmanager
    def microbatches(self, sample_ids: Sequence[str] | None) -> Iterator[AroundForward]:
        """Replay in the block, in which a schedule runs all micro-batches of some rows.

        ``sample_ids`` name the rows in the trace. After the block no route is left.

        Raises:
            RouterReplayError: A router ran more or fewer times than the micro-batches need.
        """
        self._waiting.clear()
        try:
            with ExitStack() as self._backward:
                yield partial(self._forward, sample_ids)
        except BaseException:
            self.replayer.forget()
            raise
        self.replayer.finish()

    @contextmanager
    def _forward(
        self, sample_ids: Sequence[str] | None, part: Microbatch, given: ModelInput
    ) -> Iterator[None]:
        """Replay a micro-batch's routes in the block, which runs its forward pass on this stage."""
        order = given.pack or TokenOrder.of(
            part.rows[INPUT_LENGTHS].to(self._device), given.ids.shape[1], "padded"
        )
        ids = None if sample_ids is None else sample_ids[part.span.start : part.span.stop]
        own = self.replayer.order_of_rank(order)
        routes = part.rows[ROUTED_EXPERTS].to(self._device)
        replayed: ReplayedPass | None = None
        done = False
        try:
            with self.replayer.forward(routes, order) as replayed:
                yield
            done = True
        finally:
            if replayed is not None:
                self._note_tokens(replayed, given)
                this = _Waiting(ids, own, replayed)
                if done and self._recomputes and torch.is_grad_enabled():
                    self._waiting.append(this)
                else:
                    self._write(this)

    def _note_ids(self, _model: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._given_ids = inputs[0]

    def _note_tokens(self, replayed: ReplayedPass, given: ModelInput) -> None:
        """Note the tokens that this rank's layers got, from what the model got.

        The layers' order is that of ``GPTModel``: its embedding makes (B, S) (S, B), and splits S
        under sequence parallelism. Positions are those by which attention sees tokens.
        """
        ids = self._given_ids
        if given.pack is None:
            positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        else:
            positions = given.pack.position[None]
        replayed.token_ids, replayed.positions = self._as_split(ids), self._as_split(positions)

    def _as_split(self, values: Tensor) -> Tensor:
        part = self._tp_rank if self._parts > 1 else 0
        return values.T.flatten().chunk(self._parts)[part]

    def _note_backward(self, _model: nn.Module, _inputs: Any, output: Any) -> None:
        """Let autograd tell when it comes back to this output."""
        if output.requires_grad:
            output.register_hook(self._begin_backward)

    def _begin_backward(self, _gradient: Tensor) -> None:
        again = self._backward.enter_context(self.replayer.backward())
        engine: Any = torch.autograd.Variable._execution_engine
        engine.queue_callback(partial(self._end_backward, again))

    def _end_backward(self, again: ReplayedPass) -> None:
        this = self._waiting.popleft()
        try:
            self._backward.close()
        finally:
            for used, recomputed in zip(this.replayed.used, again.used, strict=True):
                used.extend(recomputed)
            self._write(this)

    def _write(self, this: _Waiting) -> None:
        if self.trace is not None and this.ids is not None:
            order = TokenOrder(*(column.cpu() for column in this.order))
            self.trace.replayed(this.ids, order, this.replayed, self._first_layer)
