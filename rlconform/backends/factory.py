"""``build_data_plane_client``: opens the client that a ``data_plane`` block describes.

An implementation is imported only when a block selects it, so that the memory plane needs no Ray.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rlconform.backends.config import DataPlaneConfig, parse_data_plane
from rlconform.contract import ConfigError, DataPlaneClient

if TYPE_CHECKING:
    from rlconform.backends.base import BaseClient


def build_data_plane_client(
    cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True
) -> DataPlaneClient:
    """Start the plane that a block describes, or attach to it.

    ``cfg`` is a block, validated or not, or a whole configuration that has one. ``bootstrap`` is
    True in the owner, the one process that starts the plane, and False in all others. With
    ``observability.enabled`` the client reports each operation, see ``observability``.
    ``ConfigError`` if the block can't be used or says ``enabled: false``, ``PlaneUnavailable`` if
    there is no plane to attach to.
    """
    block = cfg.model_dump(exclude_none=True) if isinstance(cfg, DataPlaneConfig) else cfg
    config = parse_data_plane(block)
    if not config.enabled:
        raise ConfigError(
            "data_plane.enabled is false: set it to true, or run a trainer that keeps its batches "
            "in memory and builds no data plane"
        )
    client = _open(config, bootstrap)
    if config.observability is None or not config.observability.enabled:
        return client
    from rlconform.backends.observability import observed  # noqa: PLC0415

    return observed(client, config.observability.callback)


def _open(config: DataPlaneConfig, bootstrap: bool) -> BaseClient:
    if config.impl == "memory":
        from rlconform.backends.memory import MemoryClient  # noqa: PLC0415

        return MemoryClient(config, bootstrap=bootstrap)
    if config.impl == "ray_store":
        from rlconform.backends.ray_store.client import RayStoreClient  # noqa: PLC0415

        return RayStoreClient(config, bootstrap=bootstrap)
    from rlconform.backends.transfer_queue.client import TransferQueueClient  # noqa: PLC0415

    return TransferQueueClient(config, bootstrap=bootstrap)
