"""``TransferQueueClient``: a client of TransferQueue with either of its storage engines.

    TransferQueueClient ──▶ TransferQueueEngine ──▶ Store ──bytes──▶ TransferQueue's storage
                                      └──atomic operations──▶ RowTable, in the controller

``store.py`` describes the steps of a put, a get and a clear.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlconform.backends import validation
from rlconform.backends.base import SharedClient, load_module
from rlconform.backends.config import DataPlaneConfig, TransferQueueConfig, config_of

#: Default timeout of the controller's answer, below the 30 s that a target allows for an operation.
_ANSWER_MS = 20_000


class TransferQueueClient(SharedClient):
    """A client of a TransferQueue, used like ``MemoryClient``.

    >>> owner = TransferQueueClient(cfg)                       # starts the plane
    >>> worker = TransferQueueClient(cfg, bootstrap=False)     # in a Ray actor of the same cluster
    >>> worker.close()  # ends this client only
    >>> owner.close()   # ends the plane

    A read raises ``ForeignRow`` if another writer has overwritten a row's bytes in the store. A
    blocking claim polls the controller every ``claim_meta_poll_interval_s`` seconds; a poll returns
    all rows or none.

    Raises:
        ConfigError: The block is invalid, or a package or library is not installed.
        PlaneUnavailable: The plane did not start, or there is no plane to attach to.
    """

    def __init__(self, cfg: DataPlaneConfig | Mapping[str, Any], bootstrap: bool = True) -> None:
        config = config_of(TransferQueueConfig, cfg)
        self._owner = validation.flag("bootstrap", bootstrap)
        runtime = load_module("transfer_queue.runtime", "tq")
        engine = load_module("transfer_queue.engine", "tq")
        self._connection = runtime.start(config) if bootstrap else runtime.attach()
        self._engine = engine.TransferQueueEngine(
            self._connection,
            config.claim_meta_poll_interval_s,
            (config.ack_timeout_ms or _ANSWER_MS) / 1e3,
        )
