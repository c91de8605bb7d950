"""Data parallelism: one model on all ranks, as replicas (DDP) or as shards (FSDP).

    wrap(model) ── forward, backward per micro-batch ──▶ gradients of this rank's rows
                ── finish_gradients, once per step ────▶ their sum over all ranks, on every rank

Losses are normalised by the counts of the whole batch, so gradients are summed over ranks, not
averaged. A floating-point sum depends on its order. Here the order depends only on the number of
ranks and the size of the model, so runs are reproducible.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard

Parallelism = Literal["ddp", "fsdp2"]


class DataParallel:
    """One model on all ranks of the default process group."""

    #: Factor by which a micro-batch's loss is multiplied before the backward pass.
    loss_scale: float = 1.0

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return this rank's replica or shard of the model; all ranks pass equal weights."""
        return model

    def before_backward(self, model: nn.Module, is_last: bool) -> None:
        """Prepare a backward pass; ``is_last`` marks the last pass of an optimizer step."""

    def finish_gradients(self, model: nn.Module) -> None:
        """Sum the gradients over all ranks, after the last backward pass."""


class DDP(DataParallel):
    """Every rank has the whole model, with one all-reduce of all gradients per optimizer step.

    torch's ``DistributedDataParallel`` is not used: it reduces in buckets that it rebuilds after
    the first step, so a resumed run would add in another order than an uninterrupted one.
    """

    def finish_gradients(self, model: nn.Module) -> None:
        """Sum gradients over ranks; a missing gradient, as of an unused expert, counts as 0."""
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in trained if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = torch.split(flat, [gradient.numel() for gradient in gradients])
        for gradient, summed in zip(gradients, parts, strict=True):
            gradient.copy_(summed.view_as(gradient))


class FSDP(DataParallel):
    """FSDP2: every rank has a shard of each weight, of its gradient and of the optimizer's state.

    The last backward pass averages gradients over ranks; ``loss_scale``, the number of ranks, turns
    the mean into the sum. Source: Zhao et al. 2023, arXiv 2304.11277.
    """

    def __init__(self) -> None:
        self.loss_scale = float(dist.get_world_size())

    def wrap(self, model: nn.Module) -> nn.Module:
        """Shard layer by layer, so that only one layer is gathered at a time."""
        causal_model: Any = model  # of transformers, whose methods nn.Module lacks
        for layer in causal_model.get_decoder().layers:
            fully_shard(layer)
        fully_shard(model)
        return model

    def before_backward(self, model: nn.Module, is_last: bool) -> None:
        """Reduce gradients over ranks only in the last backward pass."""
        assert isinstance(model, FSDPModule)
        model.set_is_last_backward(is_last)
        model.set_requires_gradient_sync(is_last)


PARALLELISMS: dict[Parallelism, type[DataParallel]] = {"ddp": DDP, "fsdp2": FSDP}


def clip_gradients(model: nn.Module, max_norm: float | None) -> float:
    """Clip the total gradient norm, after ``finish_gradients``; return the norm before clipping."""
    bound = float("inf") if max_norm is None else max_norm
    norm: Any = nn.utils.clip_grad_norm_(model.parameters(), bound)
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return float(whole)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return copies of all weights in CPU memory, or {} on ranks above 0; collective under FSDP."""
    weights: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() != 0:
        return {}
    return {name: leaf.detach().cpu().clone() for name, leaf in weights.items()}
