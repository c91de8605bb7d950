"""``observed``: a client that reports its operations as NeMo-RL's ``observability`` block asks.

Each operation is one dict of the keys and the operation names that NeMo-RL's callbacks get, so that
a callback written for it works here:

    {"op": "put", "partition_id": "train", "n_keys": 8, "n_bytes": 4096, "wall_ms": 0.7,
     "status": "ok"}
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rlconform.contract import DataPlaneClient
from rlconform.plane.metrics import MetricsClient, Operation

_LOG = logging.getLogger(__name__)

#: Operations that NeMo-RL names otherwise than the client's method.
_NAMES = {
    "register_partition": "register",
    "put_samples": "put",
    "get_samples": "get",
    "clear_samples": "clear",
}


def observed(
    client: DataPlaneClient, callback: Callable[[dict[str, Any]], object] | None = None
) -> MetricsClient:
    """The client, reporting to ``callback``; without one it logs each operation at level INFO."""
    report = callback or _log

    def reported(operation: Operation) -> None:
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

    return MetricsClient(client, reported)


def _log(event: dict[str, Any]) -> None:
    _LOG.info("data plane operation: %s", event)
