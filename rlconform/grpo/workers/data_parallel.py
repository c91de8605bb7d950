"""How the data-parallel ranks keep one model: each a whole replica, or each a part of it.

    wrap(model) ── forward, backward per micro-batch ──▶ gradients of this rank's rows
                ── finish_gradients, once per step ────▶ their sum over all ranks, on every rank

Losses come normalised by counts of the whole batch, so that ranks' gradients add up: nobody
averages. A sum of floats depends on its order; both ways add in one that the number of ranks and
the model's size alone decide, the same in each run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import FSDPModule, fully_shard

Parallelism = Literal["ddp", "fsdp2"]


class DataParallel(ABC):
    """One model on all ranks of the default process group.

    Attributes:
        loss_scale: What a micro-batch's loss is multiplied by before its backward pass.
    """

    loss_scale: float = 1.0

    @abstractmethod
    def wrap(self, model: nn.Module) -> nn.Module:
        """The model as this rank keeps it; all ranks bring equal weights."""

    @abstractmethod
    def before_backward(self, model: nn.Module, is_last: bool) -> None:
        """Called before each backward pass of an optimizer step; ``is_last`` before its last."""

    @abstractmethod
    def finish_gradients(self, model: nn.Module) -> None:
        """Called after the last one: gradients are the sums over all ranks from then on."""


class DDP(DataParallel):
    """Distributed data parallelism: every rank has the whole model.

    One all-reduce per optimizer step, of all gradients end to end. torch's own class overlaps its
    with the backward pass, in buckets that it forms anew after the first step: a run that was
    resumed would add in another order than one that was not.
    """

    def wrap(self, model: nn.Module) -> nn.Module:
        """The model itself."""
        return model

    def before_backward(self, model: nn.Module, is_last: bool) -> None:
        """Gradients accumulate by themselves."""

    def finish_gradients(self, model: nn.Module) -> None:
        """Sum the gradients of all ranks; one that a rank lacks, as an unused expert's, is 0."""
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
    """FSDP2: every rank keeps a part of each weight, of its gradient and of the optimizer's state.

    Zhao et al. 2023, arXiv 2304.11277. FSDP averages gradients over the ranks, hence the scale.
    """

    def __init__(self) -> None:
        self.loss_scale = float(dist.get_world_size())

    def wrap(self, model: nn.Module) -> nn.Module:
        """Shard layer by layer, so that one layer at a time is whole."""
        for layer in _layers(model):
            fully_shard(layer)
        fully_shard(model)
        return model

    def before_backward(self, model: nn.Module, is_last: bool) -> None:
        """Reduce gradients in the last backward pass only."""
        assert isinstance(model, FSDPModule)
        model.set_is_last_backward(is_last)
        model.set_requires_gradient_sync(is_last)

    def finish_gradients(self, model: nn.Module) -> None:
        """The last backward pass has done it."""


PARALLELISMS: dict[Parallelism, type[DataParallel]] = {"ddp": DDP, "fsdp2": FSDP}


def clip_gradients(model: nn.Module, max_norm: float | None) -> float:
    """Scale the gradients down to ``max_norm`` if they are larger; their norm before that.

    The norm is the Euclidean one of all gradients together, the same on every rank.

    Args:
        model: After ``finish_gradients``.
        max_norm: None leaves the gradients as they are.
    """
    bound = float("inf") if max_norm is None else max_norm
    norm: Any = nn.utils.clip_grad_norm_(model.parameters(), bound)
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return float(whole)


def whole_weights(model: nn.Module) -> dict[str, Tensor]:
    """All weights by name, in CPU memory of their own on rank 0; empty on the other ranks.

    Collective under FSDP: every rank calls it.
    """
    weights: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if dist.get_rank() != 0:
        return {}
    return {name: leaf.detach().cpu().clone() for name, leaf in weights.items()}


def _layers(model: Any) -> list[nn.Module]:
    """The decoder's layers of a causal language model of transformers."""
    return list(model.get_decoder().layers)
