"""``observed``: wraps a client so that it reports its operations in NeMo-RL's format.

Each operation is a dict with NeMo-RL's keys and operation names, so that callbacks written for
NeMo-RL work here:

    {"op": "put", "partition_id": "train", "n_keys": 8, "n_bytes": 4096, "wall_ms": 0.7,
     "status": "ok"}
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from rlconform.backends.base import BaseClient
from rlconform.plane.metrics import MetricEvent, MetricsClient, measured

_LOG = logging.getLogger(__name__)

#: NeMo-RL's names of operations, where they differ from the client's method.
_NAMES = {
    "register_partition": "register",
    "put_samples": "put",
    "get_samples": "get",
    "clear_samples": "clear",
}


class ObservedClient(MetricsClient):
    """A ``MetricsClient`` that also reports the additional methods of the built-in planes."""

    list_sample_ids = measured(BaseClient.list_sample_ids)
    save_checkpoint = measured(BaseClient.save_checkpoint)
    load_checkpoint = measured(BaseClient.load_checkpoint)


def observed(
    client: BaseClient, callback: Callable[[dict[str, Any]], object] | None = None
) -> ObservedClient:
    """Wrap the client so that it reports operations to ``callback``, or logs them at level INFO."""
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
