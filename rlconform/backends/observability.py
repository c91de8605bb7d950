"""``observed``: a client that reports its operations as NeMo-RL's ``observability`` block asks.

Each operation is one dict of the keys and the operation names that NeMo-RL's callbacks get, so that
a callback written for it works here:

    {"op": "put", "partition_id": "train", "n_keys": 8, "n_bytes": 4096, "wall_ms": 0.7,
     "status": "ok"}
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from os import PathLike
from typing import Any

from rlconform.backends.base import BaseClient
from rlconform.plane.metrics import MetricEvent, MetricsClient

_LOG = logging.getLogger(__name__)

#: Operations that NeMo-RL names otherwise than the client's method.
_NAMES = {
    "register_partition": "register",
    "put_samples": "put",
    "get_samples": "get",
    "clear_samples": "clear",
}


class ObservedClient(MetricsClient):
    """A client around a built-in plane's, whose optional methods are reported like the others."""

    def __init__(self, client: BaseClient, callback: Callable[[MetricEvent], object]) -> None:
        super().__init__(client, callback)
        self._built_in = client

    def list_sample_ids(self, partition_id: str) -> list[str]:
        """List the ids of all rows of a partition."""
        with self._measured("list_sample_ids", partition_id):
            return self._built_in.list_sample_ids(partition_id)

    def save_checkpoint(
        self, checkpoint_dir: str | PathLike[str], *, metadata: dict[str, Any] | None = None
    ) -> None:
        """Write the whole plane to a folder."""
        with self._measured("save_checkpoint", None):
            self._built_in.save_checkpoint(checkpoint_dir, metadata=metadata)

    def load_checkpoint(self, checkpoint_dir: str | PathLike[str]) -> dict[str, Any]:
        """Fill an empty plane from a folder."""
        with self._measured("load_checkpoint", None):
            return self._built_in.load_checkpoint(checkpoint_dir)


def observed(
    client: BaseClient, callback: Callable[[dict[str, Any]], object] | None = None
) -> ObservedClient:
    """The client, reporting to ``callback``; without one it logs each operation at level INFO."""
    report = callback or _log

    def reported(operation: MetricEvent) -> None:
        report(
            {
                "op": _NAMES.get(operation.op, operation.op),
                "partition_id": operation.partition or "",
                "n_keys": operation.n_keys,
                "n_bytes": operation.n_bytes,
                "wall_ms": operation.wall_ms,
                "status": operation.status,
            }
        )

    return ObservedClient(client, reported)


def _log(event: dict[str, Any]) -> None:
    _LOG.info("data plane operation: %s", event)
