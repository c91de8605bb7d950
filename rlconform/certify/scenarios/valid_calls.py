"""Valid arguments of every method, which a check calls after a close, or with one of them wrong."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import KVBatchMeta

CALL_IDS = ["u0_g0", "u0_g1", "u1_g0"]


def batch() -> TensorDict:
    """Return a batch for ``CALL_IDS``."""
    return TensorDict({"x": torch.zeros(3, 2)}, batch_size=[3])


VALID_CALLS: dict[str, dict[str, Any]] = {
    "claim_meta": {
        "task_name": "train",
        "required_fields": ["x"],
        "batch_size": 4,
        "blocking": False,
    },
    "put_samples": {"sample_ids": CALL_IDS, "fields": batch()},
    "get_samples": {"sample_ids": CALL_IDS, "select_fields": ["x"]},
    "get_data": {"select_fields": ["x"]},
    "check_consumption_status": {"task_names": ["train"]},
    "clear_samples": {"sample_ids": CALL_IDS},
    "register_partition": {"fields": ["x"], "num_samples": 4, "consumer_tasks": ["train"]},
}


def valid_call(part: PartitionUnderTest, method: str) -> dict[str, Any]:
    """Return the arguments of a valid call of the method on this partition."""
    if method == "get_data":
        return {"meta": KVBatchMeta(part.id, None, CALL_IDS)} | VALID_CALLS[method]
    return {"partition_id": part.id} | VALID_CALLS[method]
