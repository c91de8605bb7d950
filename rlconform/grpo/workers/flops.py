"""Floating-point operations of training, and the peak rate of the GPU: together, the utilisation.

utilisation = total_flops / (seconds x theoretical_tflops x 1e12)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

#: Dense peak in TFLOP/s per GPU, as ``torch.cuda.get_device_name`` names it: 16-bit formats on
#: tensor cores, and float32 without TF32 (see ``determinism``). Source: NVIDIA's data sheets, half
#: of a rate "with sparsity"; the numbers are those of NeMo-RL's ``flops_tracker`` where it has the
#: GPU.
PEAK_TFLOPS: dict[str, tuple[float, float]] = {
    "NVIDIA A100-SXM4-40GB": (312.0, 19.5),
    "NVIDIA A100-SXM4-80GB": (312.0, 19.5),
    "NVIDIA A100 80GB PCIe": (312.0, 19.5),
    "NVIDIA H100 80GB HBM3": (989.5, 67.0),
    "NVIDIA H100 PCIe": (756.5, 51.0),
    "NVIDIA H200": (989.5, 67.0),
    "NVIDIA B200": (2250.0, 80.0),
    "NVIDIA GB200": (2450.0, 80.0),
}


class ModelFlops(NamedTuple):
    """What the count of a model's operations depends on."""

    weights: float  # used per token: without the embedding table, with the active experts only
    attention: int  # layers x heads x size of a head

    @classmethod
    def of(cls, model: nn.Module) -> ModelFlops:
        """Read the sizes of a causal language model of transformers."""
        causal: Any = model
        config = causal.config
        experts = getattr(config, "num_experts", getattr(config, "num_local_experts", None))
        active = config.num_experts_per_tok / experts if experts else 1.0
        weights = sum(
            parameter.numel() * (active if ".experts." in name else 1.0)
            for name, parameter in model.named_parameters()
        )
        if not config.tie_word_embeddings:  # a tied table is the output layer's matrix as well
            weights -= causal.get_input_embeddings().weight.numel()
        heads = config.num_attention_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        return cls(weights, config.num_hidden_layers * heads * head_dim)

    def training(self, lengths: Iterable[int]) -> float:
        """Count the operations of a forward and a backward pass, without padding or recomputation.

        6 N D, and 12 L H Q T for each of the D tokens, with N weights, L layers, H heads of size Q,
        and T the length of the token's row (Chowdhery et al. 2022, PaLM, arXiv 2204.02311, appendix
        B). A third of it is the forward pass.
        """
        return sum(tokens * (6 * self.weights + 12 * self.attention * tokens) for tokens in lengths)


def peak_tflops(device: torch.device, dtype: torch.dtype) -> float:
    """Return the device's peak in TFLOP/s; 0.0 for a CPU, or a GPU not in ``PEAK_TFLOPS``."""
    if device.type != "cuda":
        return 0.0
    half, single = PEAK_TFLOPS.get(torch.cuda.get_device_name(device), (0.0, 0.0))
    return single if dtype == torch.float32 else half
