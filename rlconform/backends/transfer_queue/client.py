"""``TransferQueueClient``: the contract over TransferQueue, with either of its storage engines.

    TransferQueueClient ──▶ TransferQueueEngine ──▶ Store ──bytes──▶ TransferQueue's storage
                                      └──atomic operations──▶ RowTable, in the controller

``store.py`` describes the steps of a put, a get and a clear.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from rlconform.backends import validation
from rlconform.backends.base import BaseClient
from rlconform.backends.config import DataPlaneConfig, TransferQueueConfig, parse_data_plane
from rlconform.contract import ConfigError
from rlconform.contract.target import PlaneControl


class TransferQueueClient(BaseClient):
    """A client of a TransferQueue.

    >>> owner = TransferQueueClient(cfg)                       # starts the plane
    >>> worker = TransferQueueClient(cfg, bootstrap=False)     # in a Ray actor of the same cluster
    >>> owner.register_partition("train", ["x"], 2, ["train"])
    >>> worker.put_samples(["a", "b"], "train", TensorDict({"x": torch.arange(2)}, [2]))
    >>> owner.get_data(owner.claim_meta("train", "train", ["x"], batch_size=2))["x"]
    tensor([0, 1])
    >>> worker.close()  # ends this client only
    >>> owner.close()   # ends the plane

    An object column holds plain data only. A read raises ``ForeignRow`` if another writer has
    overwritten a row's bytes in the store. A blocking claim polls the controller every
    ``claim_meta_poll_interval_s``, each time for all rows or none.

    Args:
        cfg: A ``data_plane`` block of ``impl: transfer_queue``.
        bootstrap: True starts a plane; False attaches to the one in this process's Ray cluster.

    Raises:
        ConfigError: The block is invalid, or a package or library is not installed.
        PlaneUnavailable: The plane did not start, or there is none to attach to.
    """

    def __init__(self, cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True) -> None:
        config = cfg if isinstance(cfg, DataPlaneConfig) else parse_data_plane(cfg)
        if not isinstance(config, TransferQueueConfig):
            raise ConfigError(f"data_plane.impl is {config.impl!r}: expected 'transfer_queue'")
        self._owner = validation.flag("bootstrap", bootstrap)
        runtime, engine = _load("runtime"), _load("engine")
        self._connection = runtime.start(config) if bootstrap else runtime.attach()
        answer_ms = config.ack_timeout_ms
        self._engine = engine.TransferQueueEngine(
            self._connection,
            config.claim_meta_poll_interval_s,
            None if answer_ms is None else answer_ms / 1e3,
        )

    def control(self) -> PlaneControl:
        """Kills processes of the plane. ``ValueError`` unless this client is the owner."""
        if not self._owner:
            raise ValueError("only the owner's client can kill the plane's processes")
        control: PlaneControl = self._connection
        return control


def _load(module: str) -> Any:
    """Import a module that needs Ray and TransferQueue.

    Raises:
        ConfigError: One of them is not installed.
    """
    try:
        return importlib.import_module(f"rlconform.backends.transfer_queue.{module}")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f'the Python package {error.name} is not installed: pip install "rlconform[tq]"'
        ) from error
