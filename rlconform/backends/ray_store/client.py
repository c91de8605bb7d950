"""``RayStoreClient``: the client of the plane in Ray's object store."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from rlconform.backends import validation
from rlconform.backends.base import BaseClient
from rlconform.backends.config import DataPlaneConfig, RayStoreConfig, parse_data_plane
from rlconform.backends.index import Usage
from rlconform.contract import ConfigError
from rlconform.contract.target import PlaneControl


class RayStoreClient(BaseClient):
    """A client of a plane in a Ray cluster.

    >>> owner = RayStoreClient(cfg)                       # starts the plane, and Ray if need be
    >>> worker = RayStoreClient(cfg, bootstrap=False)     # in any process of the same cluster
    >>> owner.register_partition("train", ["x"], 2, ["train"])
    >>> worker.put_samples(["a", "b"], "train", TensorDict({"x": torch.arange(2)}, [2]))
    >>> owner.get_data(owner.claim_meta("train", "train", ["x"], batch_size=2))["x"]
    tensor([0, 1])
    >>> worker.close()  # ends this client only
    >>> owner.close()   # ends the plane

    Args:
        cfg: A ``data_plane`` block of ``impl: ray_store``. ``name`` names the plane within the
            cluster; ``storage_capacity`` limits its rows; ``global_segment_size`` is the size of
            the object store, if the plane starts Ray.
        bootstrap: True starts a plane; False attaches to the one of that name.

    Raises:
        ConfigError: The block is invalid, or Ray is not installed.
        PlaneUnavailable: The plane did not start, or there is none to attach to.
    """

    def __init__(self, cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True) -> None:
        config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
        if not isinstance(config, RayStoreConfig):
            raise ConfigError(f"data_plane.impl is {config.impl!r}: expected 'ray_store'")
        self._owner = validation.flag("bootstrap", bootstrap)
        connection, engine = _load("connection"), _load("engine")
        if bootstrap:
            opened = connection.start(
                config.name, config.storage_capacity, config.global_segment_size
            )
        else:
            opened = connection.attach(config.name)
        self._connection = opened
        self._engine = engine.RayStoreEngine(opened)

    def usage(self) -> Usage:
        """The plane's memory use, live and wasted."""
        usage: Usage = self._connection.call("usage")
        return usage

    def control(self) -> PlaneControl:
        """Kills processes of the plane. ``ValueError`` unless this client is the owner."""
        if not self._owner:
            raise ValueError("only the owner's client can kill the plane's processes")
        control: PlaneControl = self._connection
        return control


def _load(module: str) -> Any:
    """Import a module that needs Ray. ``ConfigError`` if Ray is not installed."""
    try:
        return importlib.import_module(f"rlconform.backends.ray_store.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'the Python package {error.name} is not installed: pip install "rlconform[ray]"'
        ) from error
