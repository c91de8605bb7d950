"""``MemoryClient``: the plane of one process, the reference for other planes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlconform.backends import validation
from rlconform.backends.base import BaseClient
from rlconform.backends.config import DataPlaneConfig, parse_data_plane
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import ConfigError


class MemoryClient(BaseClient):
    """A client of the plane in this process's memory.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> owner = MemoryClient()
    >>> worker = MemoryClient(bootstrap=False)  # the newest plane of this process
    >>> owner.register_partition("train", ["x"], 2, ["train"])
    >>> rows = TensorDict({"x": torch.arange(2)}, [2])
    >>> worker.put_samples(["a", "b"], "train", rows).sample_ids
    ['a', 'b']
    >>> meta = owner.claim_meta("train", "train", ["x"], batch_size=2)
    >>> owner.get_data(meta)["x"]
    tensor([0, 1])
    >>> owner.close()  # ends the plane; the worker gets PlaneUnavailable from now on

    Args:
        cfg: A ``data_plane`` block, or None. Its ``storage_capacity`` limits the rows of the whole
            plane; without it there is no limit.
        bootstrap: True starts a plane; False attaches to the newest one of this process.

    Raises:
        ConfigError: The block is invalid or for another implementation.
        PlaneUnavailable: There is no plane to attach to.
    """

    def __init__(
        self, cfg: DataPlaneConfig | Mapping[str, Any] | None = None, bootstrap: bool = True
    ) -> None:
        owner = validation.flag("bootstrap", bootstrap)
        self._engine = MemoryEngine(_capacity(cfg), owner)


def _capacity(cfg: DataPlaneConfig | Mapping[str, Any] | None) -> int | None:
    if not cfg:
        return None
    config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
    if config.impl != "memory":
        raise ConfigError(f"data_plane.impl is {config.impl!r}: expected 'memory'")
    return config.storage_capacity
