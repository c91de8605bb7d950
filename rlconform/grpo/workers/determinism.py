"""Settings that make a process compute the same bits from the same inputs.

Equal seeds are not enough for bit-equal runs: if a kernel adds values in the order in which its
threads finish, it rounds differently each time. See "Reproducibility" in PyTorch's notes.
"""

from __future__ import annotations

import os

import torch


def make_deterministic(seed: int) -> None:
    """Select deterministic kernels, full float32 products and one thread, and seed torch.

    Afterwards an operation without a deterministic kernel raises. Call this before the process
    first uses CUDA, because cuBLAS reads its workspace setting only then.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.set_float32_matmul_precision("highest")
    torch.manual_seed(seed)
