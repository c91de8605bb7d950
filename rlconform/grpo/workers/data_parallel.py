"""Data parallelism: one model on all ranks, as replicas (DDP) or as shards (FSDP).

    wrap(model) ── forward, backward per micro-batch ──▶ sums of gradients
                ── finish_gradients, once per step ────▶ all ranks' sum over a count, on every rank

The loss of a micro-batch is a sum over its tokens or rows. Its count is that of all ranks and of
the whole step, so gradients are summed over ranks and divided once. A floating-point sum depends on
its order. Here the order depends only on the micro-batches, the number of ranks and the size of the
model, not on the chunks in which micro-batches arrive.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard

Parallelism = Literal["ddp", "fsdp2"]


class DataParallel:
    """One model on all ranks of the default process group."""

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return this rank's replica or shard of the model; all ranks pass equal weights."""
        return model

    def finish_gradients(self, model: nn.Module, count: float) -> None:
        """Make each gradient the sum over all ranks divided by ``count``, after the last pass."""
        _divide_gradients(model, count)


class DDP(DataParallel):
    """Every rank has the whole model, with one all-reduce of all gradients per optimizer step.

    torch's ``DistributedDataParallel`` is not used: it reduces in buckets that it rebuilds after
    the first step, so a resumed run would add in another order than an uninterrupted one.
    """

    def finish_gradients(self, model: nn.Module, count: float) -> None:
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
        super().finish_gradients(model, count)


class FSDP(DataParallel):
    """FSDP2: every rank has a shard of each weight, of its gradient and of the optimizer's state.

    Every backward pass averages its gradients over ranks and adds them to the shards. Reducing only
    in a step's last pass would be less traffic, but which pass is the last isn't known while chunks
    arrive, and each rank would hold the gradients of the whole model until then.
    Source: Zhao et al. 2023, arXiv 2304.11277.
    """

    def wrap(self, model: nn.Module) -> nn.Module:
        """Shard layer by layer, so that only one layer is gathered at a time."""
        causal_model: Any = model  # of transformers, whose methods nn.Module lacks
        for layer in causal_model.get_decoder().layers:
            fully_shard(layer)
        fully_shard(model)
        return model

    def finish_gradients(self, model: nn.Module, count: float) -> None:
        """Turn the means over ranks into sums, and divide them by ``count``."""
        super().finish_gradients(model, count / dist.get_world_size())


PARALLELISMS: dict[Parallelism, type[DataParallel]] = {"ddp": DDP, "fsdp2": FSDP}


def _divide_gradients(model: nn.Module, count: float) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.div_(count)


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


def sum_over_ranks(values: Iterable[float], device: torch.device) -> list[float]:
    """Sum each number over all ranks, in float64 and in the order of the ranks."""
    by_rank = gather_over_ranks(values, device).unbind()
    summed: list[float] = sum(by_rank[1:], start=by_rank[0]).tolist()
    return summed


def gather_over_ranks(values: Iterable[float], device: torch.device) -> Tensor:
    """Return every rank's k numbers on every rank, (ranks, k) float64."""
    own = torch.tensor(list(values), dtype=torch.float64, device=device)
    by_rank = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(by_rank, own)
    return torch.stack(by_rank)
