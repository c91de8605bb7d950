"""The simplest round trip through a plane: tests whether it works, and what types it returns.

A plane that returns a tuple where the contract says list works in most places, but fails when a
trainer adds two lists of ids. The report has a note about such types; the checks judge values.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.certify.scenarios.normalize_metas import strange_types
from rlconform.contract import DataPlaneClient, Tags


@contextmanager
def round_trip(
    client: DataPlaneClient, tags: list[Tags] | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Put, read and claim a row; yield its partition and the results; at the end clear the row."""
    part = f"health-{uuid.uuid4().hex[:8]}"
    rows = TensorDict({"x": torch.ones(1)}, batch_size=[1])
    client.register_partition(partition_id=part, fields=["x"], num_samples=1, consumer_tasks=["t"])
    receipt = client.put_samples(sample_ids=["h"], partition_id=part, fields=rows, tags=tags)
    client.get_samples(sample_ids=["h"], partition_id=part, select_fields=["x"])
    claimed = client.claim_meta(
        partition_id=part, task_name="t", required_fields=["x"], batch_size=1, blocking=False
    )
    yield part, {"put_samples": receipt, "claim_meta": claimed}
    client.clear_samples(sample_ids=["h"], partition_id=part)


def remarks_on_types(client: DataPlaneClient) -> list[str]:
    """Return remarks on unusual types of a put's receipt, a claim's meta and a status, in words."""
    with round_trip(client, [{"input_lengths": 1}]) as (part, returned):
        status = client.check_consumption_status(partition_id=part, task_names=["t"])
    returned["check_consumption_status"] = status
    return [remark for method, value in returned.items() for remark in strange_types(method, value)]
