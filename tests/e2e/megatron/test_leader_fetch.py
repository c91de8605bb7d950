"""The leader's rows, object columns among them, are those that each rank would read itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlconform.contract import DataPlaneClient
from rlconform.contract.fields import INPUT_IDS
from rlconform.grpo.actors import RunActors
from rlconform.grpo.config import MasterConfig
from rlconform.grpo.plane_traffic import Attach
from rlconform.grpo.rollout.worker import MESSAGE_LOGS
from rlconform.grpo.trainers.plane_policy import TRAIN_PARTITION, PlanePolicy
from rlconform.grpo.workers.plane_policy_worker import PlanePolicyWorker
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.plane import kv_first_write, mint_sample_ids
from rlconform.wire import object_column

pytestmark = pytest.mark.timeout(300)


def logs(rows: TensorDict) -> list[Any]:
    """Make a log per row, with tensors within; some rows have none."""
    return [
        None if row % 5 == 4 else [{"role": "user", "token_ids": ids[: row % 3 + 1].clone()}, row]
        for row, ids in enumerate(rows[INPUT_IDS])
    ]


@pytest.mark.parametrize("plane_name", ["ray_store", "transfer_queue/simple"], indirect=True)
@pytest.mark.parametrize("layout", ["tp2 leader", "tp2"])
def test_object_columns_reach_every_rank(
    groups: Callable[[int], RunActors],
    configure: Callable[..., MasterConfig],
    owner: DataPlaneClient,
    attach: Attach,
    rows: TensorDict,
    rank_class: Any,
    layout: str,
) -> None:
    config, workers = configure("tiny_llama_copy", layout), groups(2).workers
    workers.all(PolicyWorker.build, config)
    opened = PlanePolicy(groups(2), config, owner, attach, 0)
    try:
        opened.prepare_step(num_samples=16, group_size=4)
        written = rows.clone().set(MESSAGE_LOGS, object_column(logs(rows)))
        meta = kv_first_write(owner, written, mint_sample_ids("abcd", 4), TRAIN_PARTITION)
        (shard,) = opened._shards(meta, "train", 16)
        for ids, got in workers.all(rank_class.read, shard, [INPUT_IDS, MESSAGE_LOGS]):
            assert torch.equal(ids[:, : rows[INPUT_IDS].shape[1]], rows[INPUT_IDS])
            assert list(map(plain, got)) == list(map(plain, logs(rows)))
        reads = [each.bytes_read > 0 for each in workers.all(PlanePolicyWorker.traffic)]
        assert reads == [True, layout == "tp2"]
        opened.finish_step(meta)
    finally:
        opened.shutdown()


def plain(log: Any) -> Any:
    """Return a log with lists in place of tensors, which can be compared."""
    return log and [{**log[0], "token_ids": log[0]["token_ids"].tolist()}, log[1]]
