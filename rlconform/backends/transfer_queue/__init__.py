"""TransferQueue, with its own storage (``SIMPLE``) and with Mooncake over TCP (``MOONCAKE_CPU``).

Ray and TransferQueue are imported only when a plane is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import metadata
from operator import methodcaller
from typing import Any

from rlconform.contract import DataPlaneClient, SmallPlane, Target, Timeouts


def _open(cfg: Mapping[str, Any], bootstrap: bool) -> DataPlaneClient:
    from rlconform.backends.transfer_queue.client import TransferQueueClient  # noqa: PLC0415

    return TransferQueueClient(cfg, bootstrap=bootstrap)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


_CONFIG: dict[str, Any] = {
    "enabled": True,
    "impl": "transfer_queue",
    "backend": "simple",
    "storage_capacity": 100_000,
    "num_storage_units": 2,
    "claim_meta_poll_interval_s": 0.02,
    "global_segment_size": 2**30,
    "local_buffer_size": 2**28,
}

SIMPLE = Target(
    name="transfer_queue/simple",
    vendor="TransferQueue",
    version=_version("TransferQueue"),
    open=_open,
    level="functional",
    capabilities={
        "objects": True,
        "dtype_fp8": True,
        "dtype_complex": True,
        "group_claims": True,
        "restart": True,
        "control": True,
        "capacity": True,
        "cuda": "rows are kept in CPU memory; CUDA tensors are copied there",
    },
    timeouts=Timeouts(start=120.0, operation=30.0, settle=5.0, check=120.0),
    config=_CONFIG,
    control=methodcaller("control"),
    small=SmallPlane(config={"storage_capacity": 64}, rows=64),
)

MOONCAKE_CPU = replace(
    SIMPLE,
    name="transfer_queue/mooncake_cpu",
    version=" + mooncake ".join(
        filter(None, [SIMPLE.version, _version("mooncake-transfer-engine-non-cuda")])
    ),
    config=_CONFIG | {"backend": "mooncake_cpu"},
)

__all__ = ["MOONCAKE_CPU", "SIMPLE"]
