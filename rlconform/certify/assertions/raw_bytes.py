"""The bytes of tensors, in which NaN payloads and signed zeros differ."""

from __future__ import annotations

import torch

#: Dtypes that numpy has too. It returns their bytes in a sixth of the time that torch needs.
_OF_NUMPY = frozenset(
    {
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.float32, torch.float64,
    }
)  # fmt: skip


def raw_bytes(tensor: torch.Tensor) -> bytes:
    """Return the bytes of the tensor's elements in order, whatever its layout in memory."""
    if tensor.dtype in _OF_NUMPY and tensor.device.type == "cpu" and not tensor.is_neg():
        return tensor.detach().numpy().tobytes()
    return as_bytes(tensor).numpy().tobytes()


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes as a flat uint8 tensor on the CPU."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
    # copied first: view(uint8) needs stride 1, and contiguous() may leave one element another
    # stride
    return plain.clone(memory_format=torch.contiguous_format).view(torch.uint8)
