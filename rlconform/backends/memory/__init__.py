"""The memory plane: it runs in one process and fulfils every requirement for such planes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlconform import __version__
from rlconform.backends.memory.client import MemoryClient
from rlconform.contract import Target


def _open(cfg: Mapping[str, Any], bootstrap: bool) -> MemoryClient:
    return MemoryClient(cfg, bootstrap=bootstrap)


TARGET = Target(
    name="memory",
    vendor="rlconform",
    version=__version__,
    open=_open,
    level="unit",
    capabilities={
        "objects": True,
        "dtype_fp8": True,
        "dtype_complex": True,
        "group_claims": True,
        "restart": True,
        "cuda": "rows are kept in CPU memory; CUDA tensors are copied there",
        "control": "the plane has no process of its own to kill",
    },
)

__all__ = ["TARGET", "MemoryClient"]
