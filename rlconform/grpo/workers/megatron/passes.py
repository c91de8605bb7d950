"""``MegatronPasses``: runs micro-batches through Megatron's schedule, forward or also backward.

    rows, spans ──▶ schedule ── forward_step, once per micro-batch and pipeline stage ──▶ model
                                 first stage: token ids      last stage: logits ──▶ logprobs (n, T)

Megatron's schedules decide in which order micro-batches go through the stages; a stage waits for
the one before it. Without pipeline stages the schedule is a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from megatron.core import parallel_state
from megatron.core.packed_seq_params import PackedSeqParams
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy
from tensordict import TensorDict
from torch import Tensor, nn

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS
from rlconform.grpo.config import MasterConfig, Stage
from rlconform.grpo.models import TokenOrder
from rlconform.grpo.workers.megatron.context_parallel import ContextParts, slots_by_rank
from rlconform.grpo.workers.megatron.model import HAS_TRANSFORMER_ENGINE
from rlconform.grpo.workers.megatron.plan_check import MicrobatchShape
from rlconform.grpo.workers.microbatches import TokenSpan, slice_microbatch
from rlconform.plane.microbatches import round_up


class ModelInput(NamedTuple):
    """What a model gets of a micro-batch of n rows.

    ``ids`` are (n, W), or (1, W) with the rows laid end to end as in ``pack``; under context
    parallelism the part of this rank. ``following`` are the tokens that follow them.
    """

    ids: Tensor
    following: Tensor
    pack: TokenOrder | None = None
    parts: ContextParts | None = None


class Microbatch(NamedTuple):
    """Some rows of a rank; ``span`` is their place among them."""

    rows: TensorDict
    span: TokenSpan


#: Called around the forward pass of each micro-batch, on every pipeline stage.
AroundForward = Callable[[Microbatch, ModelInput], AbstractContextManager[None]]
#: Returns the loss, a sum, of a micro-batch, given its logprobs.
MicrobatchLoss = Callable[[Microbatch, Tensor], Tensor]


def nothing_around(_part: Microbatch, _given: ModelInput) -> AbstractContextManager[None]:
    """Do nothing around a forward pass."""
    return nullcontext()


class MegatronPasses:
    """The forward and backward passes of one rank."""

    def __init__(self, config: MasterConfig, device: torch.device, vocabulary: int) -> None:
        self._config = config
        self._device = device
        self._vocabulary = vocabulary
        self._packed = config.policy.packing.mode == "sequence_packing"

    def shape(self, span: TokenSpan, stage: Stage) -> MicrobatchShape:
        """Return the shape of the model's input for a planned micro-batch."""
        if not self._packed:
            return MicrobatchShape(span.stop - span.start, span.tokens)
        return MicrobatchShape(1, self._packed_width(span, stage))

    def _packed_width(self, span: TokenSpan, stage: Stage) -> int:
        """Return the width of packed rows, which is a step's only one where ranks share it."""
        megatron, packing = self._config.policy.megatron_cfg, self._config.policy.packing
        multiple = megatron.width_multiple
        one_width = (
            megatron.expert_model_parallel_size > 1 or megatron.pipeline_model_parallel_size > 1
        )
        planned = packing.sequence_packing(stage)
        if not one_width or planned is None:
            return round_up(span.tokens, multiple)
        return round_up(planned.max_tokens_per_microbatch, multiple)

    def logprobs(
        self,
        model: nn.Module,
        rows: TensorDict,
        spans: Sequence[TokenSpan],
        around: AroundForward = nothing_around,
    ) -> list[Tensor]:
        """Return each micro-batch's logprobs on the last pipeline stage, [] on the others."""

        def collect(_part: Microbatch, logprobs: Tensor) -> Tensor:
            return logprobs

        collected: list[Tensor] = self._run(
            model, rows, spans, "logprob", collect, around, forward_only=True, collect=True
        )
        return collected

    def losses(
        self,
        model: nn.Module,
        rows: TensorDict,
        spans: Sequence[TokenSpan],
        loss: MicrobatchLoss,
        around: AroundForward = nothing_around,
        *,
        backward: bool,
    ) -> None:
        """Compute each micro-batch's loss and, ``backward``, add its gradients up."""
        self._run(
            model, rows, spans, "train", loss, around, forward_only=not backward, collect=False
        )

    def _run(
        self,
        model: nn.Module,
        rows: TensorDict,
        spans: Sequence[TokenSpan],
        stage: Stage,
        use: MicrobatchLoss,
        around: AroundForward,
        *,
        forward_only: bool,
        collect: bool,
    ) -> Any:
        return get_forward_backward_func()(
            forward_step_func=partial(self._forward_step, rows, stage, use, around),
            data_iterator=iter(spans),
            model=[model],
            num_microbatches=len(spans),
            seq_length=max(self.shape(span, stage).width for span in spans),
            micro_batch_size=max(self.shape(span, stage).rows for span in spans),
            forward_only=forward_only,
            collect_non_loss_data=collect,
        )

    def _forward_step(
        self,
        rows: TensorDict,
        stage: Stage,
        use: MicrobatchLoss,
        around: AroundForward,
        spans: Iterator[TokenSpan],
        model: nn.Module,
    ) -> tuple[Tensor, Callable[..., Any]]:
        span = next(spans)
        taken = slice_microbatch(rows, span, "packed" if self._packed else "padded")
        part = Microbatch(taken, span)
        given = self._input(part.rows, self.shape(span, stage).width)
        mask, packed_params = self._attention(given.pack)
        with around(part, given):
            output = model(given.ids, None, mask, packed_seq_params=packed_params)

        def after(logits: Tensor, non_loss_data: bool = False) -> Any:
            result = use(part, self._picked(logits, part.rows, given))
            if non_loss_data:
                return result
            return result, torch.zeros((), dtype=torch.int32, device=self._device), {}

        return output, after

    def _input(self, part: TensorDict, width: int) -> ModelInput:
        ids = part[INPUT_IDS].to(self._device)
        counts = part[INPUT_LENGTHS].to(self._device)
        pack = None
        if self._packed:
            multiple = self._config.policy.packing.sequence_length_round
            pack = TokenOrder.of(counts, ids.shape[1], "packed", multiple, width)
            ids = pack.arrange(ids, 0)[None]
        following = ids.roll(-1, dims=1)  # the output at token i predicts token i + 1
        ranks = self._config.policy.megatron_cfg.context_parallel_size
        if ranks == 1:
            return ModelInput(ids, following, pack)
        order = pack or TokenOrder.of(counts, ids.shape[1], "padded")
        group = parallel_state.get_context_parallel_group()
        parts = ContextParts(slots_by_rank(order, ranks), group)
        return ModelInput(parts.own(ids), parts.own(following), pack, parts)

    def _attention(self, pack: TokenOrder | None) -> tuple[Tensor | None, Any]:
        """Return the mask, True where hidden, or the row boundaries for Transformer Engine.

        The mask needs no positions that restart in each row: attention depends on differences.
        """
        if pack is None:
            return None, None
        if not HAS_TRANSFORMER_ENGINE:
            return ~pack.visible()[None, None], None
        slots = torch.bincount(pack.row)
        starts = nn.functional.pad(slots.cumsum(0), (1, 0)).to(torch.int32)
        longest = int(slots.max())
        return None, PackedSeqParams(
            qkv_format="thd",
            cu_seqlens_q=starts,
            cu_seqlens_kv=starts,
            max_seqlen_q=longest,
            max_seqlen_kv=longest,
        )

    def _picked(self, logits: Tensor, part: TensorDict, given: ModelInput) -> Tensor:
        """Return (n, T) logprobs of the rows' tokens; each rank has a part of the vocabulary."""
        scaled = self._only_vocabulary(logits.float() / self._config.generation.temperature)
        picked = -vocab_parallel_cross_entropy(scaled.contiguous(), given.following)
        if given.parts is not None:
            picked = given.parts.whole(picked)
        picked = picked[:, :-1]
        if given.pack is not None:
            return given.pack.scatter(picked[0], part[INPUT_IDS].shape)
        valid = torch.arange(part[INPUT_IDS].shape[1], device=self._device)
        counts = part[INPUT_LENGTHS].to(self._device)
        return torch.where(valid < counts[:, None], nn.functional.pad(picked, (1, 0)), 0)

    def _only_vocabulary(self, logits: Tensor) -> Tensor:
        """Exclude the columns that fill up the last ranks' parts of the vocabulary."""
        columns = logits.shape[-1]
        first = parallel_state.get_tensor_model_parallel_rank() * columns
        beyond = torch.arange(first, first + columns, device=logits.device) >= self._vocabulary
        if not bool(beyond.any()):
            return logits
        return logits.masked_fill(beyond, torch.finfo(logits.dtype).min)
