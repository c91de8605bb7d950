"""The ``ray_store`` plane: an index in a Ray actor, and bytes in Ray's object store.

Ray is imported only when a plane is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from typing import Any

from rlconform import __version__
from rlconform.contract import DataPlaneClient, SmallPlane, Target, Timeouts


def _open(cfg: Mapping[str, Any], bootstrap: bool) -> DataPlaneClient:
    from rlconform.backends.ray_store.client import RayStoreClient  # noqa: PLC0415

    return RayStoreClient(cfg, bootstrap=bootstrap)


TARGET = Target(
    name="ray_store",
    vendor="rlconform",
    version=__version__,
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
    timeouts=Timeouts(start=60.0, operation=10.0, settle=2.0, check=60.0),
    config={
        "enabled": True,
        "impl": "ray_store",
        "name": "ray_store",
        "global_segment_size": 2**30,
    },
    control=methodcaller("control"),
    small=SmallPlane(config={"storage_capacity": 64}, rows=64),
)

__all__ = ["TARGET"]
