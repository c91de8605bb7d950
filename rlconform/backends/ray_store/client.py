"""``RayStoreClient``: the plane of several processes, over Ray's object store."""

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
        cfg: A ``data_plane`` block of ``impl: ray_store``. ``name`` tells planes of one cluster
            apart; ``storage_capacity`` limits the plane's rows; ``global_segment_size`` is the
            size of the object store, where the plane starts Ray.
        bootstrap: Start a plane, or attach to the one of that name.

    Raises:
        ConfigError: The block can't be used, or Ray is not installed.
        PlaneUnavailable: The plane did not start, or there is none to attach to.
    """

    def __init__(self, cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True) -> None:
        config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
        if not isinstance(config, RayStoreConfig):
            raise ConfigError(f"data_plane.impl is {config.impl!r}: this is ray_store")
        self._owner = validation.flag("bootstrap", bootstrap)
        connection, engine = _load("connection"), _load("engine")
        if bootstrap:
            opened = connection.start(
                config.name, config.storage_capacity, config.global_segment_size
            )
        else:
            opened = connection.attach(config.name)
        self._session = opened
        self._engine = engine.RayStoreEngine(opened)

    def usage(self) -> Usage:
        """What the plane holds, live and wasted."""
        usage: Usage = self._session.call("usage")
        return usage

    def control(self) -> PlaneControl:
        """Power over the processes of the plane. ``ValueError`` unless this client owns it."""
        if not self._owner:
            raise ValueError("an attached client has no power over the plane's processes")
        control: PlaneControl = self._session
        return control


def _load(module: str) -> Any:
    """A module of this package that imports Ray. ``ConfigError`` if that is not installed."""
    try:
        return importlib.import_module(f"rlconform.backends.ray_store.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'the Python package {error.name} is not installed: pip install "rlconform[ray]"'
        ) from error
