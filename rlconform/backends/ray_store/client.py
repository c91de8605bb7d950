"""``RayStoreClient``: the client of the plane in Ray's object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlconform.backends import validation
from rlconform.backends.base import SharedClient, load_module
from rlconform.backends.config import DataPlaneConfig, RayStoreConfig, config_of
from rlconform.backends.index import Usage

#: Milliseconds that a call may wait for the controller, if ``ack_timeout_ms`` does not say.
_ANSWER_MS = 30_000


class RayStoreClient(SharedClient):
    """A client of a plane in a Ray cluster, used like ``MemoryClient``.

    >>> owner = RayStoreClient(cfg)                       # starts the plane, and Ray if need be
    >>> worker = RayStoreClient(cfg, bootstrap=False)     # in any process of the same cluster
    >>> worker.close()  # ends this client only
    >>> owner.close()   # ends the plane

    Raises:
        ConfigError: The block is invalid, or Ray is not installed.
        PlaneUnavailable: The plane did not start, or no plane of this name runs in the cluster.
    """

    def __init__(self, cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True) -> None:
        config = config_of(RayStoreConfig, cfg)
        self._owner = validation.flag("bootstrap", bootstrap)
        connection = load_module("ray_store.connection", "ray")
        engine = load_module("ray_store.engine", "ray")
        answer_s = (config.ack_timeout_ms or _ANSWER_MS) / 1e3
        if bootstrap:
            self._connection = connection.start(
                config.name, answer_s, config.storage_capacity, config.global_segment_size
            )
        else:
            self._connection = connection.attach(config.name, answer_s)
        self._engine = engine.RayStoreEngine(self._connection)

    def usage(self) -> Usage:
        """Return the plane's memory use, live and wasted."""
        usage: Usage = self._connection.call("usage")
        return usage
