"""Attention over the parts of rows, for tests of context parallelism on the CPU.

Megatron leaves it to Transformer Engine, which needs a GPU; its own attention refuses parts. Here
each rank gathers the keys and values of all ranks, and hides those that come later in the row:

    rank 0: chunks 0 and 3 ──┐                  own queries
    rank 1: chunks 1 and 2 ──┴─▶ all chunks ──▶ keys and values, masked by their places
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class _Gathered(torch.autograd.Function):
    """The parts (s, ...) of all ranks, one after the other; the gradient is summed over ranks."""

    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Any) -> Tensor:
        ctx.group = group
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size(group))]
        dist.all_gather(parts, part.contiguous(), group=group)
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        summed = gradient.contiguous()
        dist.all_reduce(summed, group=ctx.group)
        return summed.chunk(dist.get_world_size(ctx.group))[dist.get_rank(ctx.group)], None


def attend_over_context() -> None:
    """Let Megatron's attention in plain torch take parts of rows, in this process."""
    from megatron.core import parallel_state
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    attention: Any = DotProductAttention
    if attention.__init__.__module__ != attention.__module__:
        return  # it is done
    build, attend = attention.__init__, attention.forward

    def build_for_parts(self: Any, config: Any, *args: Any, **options: Any) -> None:
        ranks, config.context_parallel_size = config.context_parallel_size, 1
        try:
            build(self, config, *args, **options)
        finally:
            config.context_parallel_size = ranks

    def attend_to_all(
        self: Any, query: Tensor, key: Tensor, value: Tensor, mask: Any, *args: Any, **options: Any
    ) -> Any:
        group = parallel_state.get_context_parallel_group()
        ranks, rank = dist.get_world_size(group), dist.get_rank(group)
        if ranks > 1:
            key, value = _Gathered.apply(key, group), _Gathered.apply(value, group)
            chunks = torch.arange(len(key)).chunk(2 * ranks)
            places = [torch.cat([chunks[r], chunks[2 * ranks - 1 - r]]) for r in range(ranks)]
            mask = (torch.cat(places) > places[rank][:, None])[None, None]
        return attend(self, query, key, value, mask, *args, **options)

    attention.__init__, attention.forward = build_for_parts, attend_to_all
