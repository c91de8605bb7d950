"""``MemoryClient``: the client of the one-process plane, the reference for other planes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlconform.backends import validation
from rlconform.backends.base import BaseClient
from rlconform.backends.config import DataPlaneConfig, MemoryConfig, config_of
from rlconform.backends.memory.engine import MemoryEngine


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

    ``cfg``'s ``storage_capacity`` limits the rows of the whole plane; by default there is no limit.
    ``bootstrap`` starts a plane; without it, the client attaches to the newest plane of this
    process, or raises ``PlaneUnavailable``.
    """

    def __init__(
        self, cfg: DataPlaneConfig | Mapping[str, Any] | None = None, bootstrap: bool = True
    ) -> None:
        owner = validation.flag("bootstrap", bootstrap)
        self._engine = MemoryEngine(_capacity(cfg), owner)


def _capacity(cfg: DataPlaneConfig | Mapping[str, Any] | None) -> int | None:
    return config_of(MemoryConfig, cfg).storage_capacity if cfg else None
