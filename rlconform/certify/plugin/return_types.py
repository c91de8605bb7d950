"""Finds return values of types other than the contract's, before the first check.

A plane that returns a tuple where the contract says list works in most places, but fails when a
trainer adds two lists of ids. The report has a note about it; the checks judge values.
"""

from __future__ import annotations

import uuid

import torch
from tensordict import TensorDict

from rlconform.certify.scenarios.normalize_metas import strange_types
from rlconform.contract import DataPlaneClient


def remarks_on_types(client: DataPlaneClient) -> list[str]:
    """The unusual types of a put's receipt, a claim's meta and a status, in words.

    Raises:
        Exception: Whatever the plane raises; the checks judge it.
    """
    partition = f"types-{uuid.uuid4().hex[:8]}"
    ids, rows = ["a", "b"], TensorDict({"x": torch.ones(2)}, batch_size=[2])
    client.register_partition(
        partition_id=partition, fields=["x"], num_samples=2, consumer_tasks=["t"]
    )
    tags = [{"input_lengths": 1}, {"input_lengths": 2}]
    receipt = client.put_samples(sample_ids=ids, partition_id=partition, fields=rows, tags=tags)
    claimed = client.claim_meta(
        partition_id=partition, task_name="t", required_fields=["x"], batch_size=2, blocking=False
    )
    consumed = client.check_consumption_status(partition_id=partition, task_names=["t"])
    client.clear_samples(sample_ids=ids, partition_id=partition)
    returned = {
        "put_samples": receipt,
        "claim_meta": claimed,
        "check_consumption_status": consumed,
    }
    return [remark for method, value in returned.items() for remark in strange_types(method, value)]
