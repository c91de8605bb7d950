"""``ContextParts``: which slots of a micro-batch each context-parallel rank gets, and back.

    slots of a row   a b c d e f g h      4 chunks for 2 ranks, so that both attend to equally many
    rank 0           a b         g h      first and last chunk
    rank 1               c d e f

    own(values (n, W))     ──▶ (n, W / ranks), this rank's slots
    whole(values (n, W / ranks)), on every rank ──▶ (n, W); each rank waits for every other

It is the order that Megatron and the attention of Transformer Engine expect. Every rank computes
the same loss from whole rows, so a rank's gradient is that of its own slots.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from rlconform.grpo.models import TokenOrder


def slots_by_rank(order: TokenOrder, ranks: int) -> list[Tensor]:
    """Return the slots of each rank, in order.

    ``ValueError`` if a row's slots, padding included, don't divide into 2 x ``ranks`` chunks.
    """
    chunks = 2 * ranks
    slots = torch.bincount(order.row)
    if (slots % chunks).any():
        raise ValueError(
            f"expected rows of a multiple of {chunks} tokens for {ranks} context-parallel ranks; "
            f"got {slots.tolist()}"
        )
    chunk = order.position * chunks // slots[order.row]
    return [
        torch.nonzero((chunk == rank) | (chunk == chunks - 1 - rank)).flatten()
        for rank in range(ranks)
    ]


class ContextParts(NamedTuple):
    """The slots of a micro-batch, by rank of ``group``."""

    slots: list[Tensor]
    group: dist.ProcessGroup

    def own(self, values: Tensor) -> Tensor:
        """Select this rank's part of values (n, W)."""
        mine = self.slots[dist.get_rank(self.group)]
        return values.flatten()[mine].view(len(values), -1)

    def whole(self, values: Tensor) -> Tensor:
        """Return the values (n, W) of all ranks, given this rank's; collective."""
        whole: Tensor = _Gathered.apply(values, self)  # type: ignore[no-untyped-call]
        return whole


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, parts: ContextParts) -> Tensor:
        ctx.parts = parts
        received = [torch.empty_like(values) for _ in parts.slots]
        dist.all_gather(received, values.contiguous(), group=parts.group)
        whole = values.new_empty(values.numel() * len(received))
        for slots, part in zip(parts.slots, received, strict=True):
            whole[slots] = part.flatten()
        return whole.view(len(values), -1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.parts.own(gradient), None
