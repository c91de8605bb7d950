"""The same bits from the same inputs: what a process must set before it computes anything.

Bit-equality of two runs needs more than seeds: a kernel that adds in the order in which its threads
arrive rounds differently each time. See "Reproducibility" in PyTorch's notes.
"""

from __future__ import annotations

import os

import torch


def make_deterministic(seed: int) -> None:
    """Deterministic kernels, full float32 products, one thread per operation, seeded generators.

    An operation that has no deterministic kernel raises from now on. To be called before the
    process first uses CUDA: cuBLAS reads its workspace setting then, and only then.

    Args:
        seed: Of torch's generators, on every device; at least 0.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(seed)
