"""``LegacyPolicy``: the policy of a driver that holds every batch itself.

    rows (N, S) ── shard_batch_for_dp ──▶ each rank its rows, in the call
    logprobs (N, S) ◀── put back in order ── the ranks' answers

It is what ``PlanePolicy`` is held against.
"""

from __future__ import annotations

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, LP_SEED_FIELDS
from rlconform.grpo.config import MasterConfig, Stage
from rlconform.grpo.trainers.driver_step import train_fields
from rlconform.grpo.trainers.legacy_sharding import RankBatch, shard_batch_for_dp
from rlconform.grpo.workers.policy_model import Metrics
from rlconform.grpo.workers.worker_group import WorkerGroup

#: Column (N,) that goes along to the ranks' order: where each row stood.
_PLACE = "place"


class LegacyPolicy:
    """Cuts batches for the ranks, and puts their results together.

    Args:
        workers: Ranks of class ``PolicyWorker``, built.
        config: The run's.
    """

    def __init__(self, workers: WorkerGroup, config: MasterConfig) -> None:
        self._workers = workers
        self._config = config

    def get_logprobs(self, rows: TensorDict) -> Tensor:
        """(N, S) logprobs of the rows under the policy's weights."""
        return self._logprobs("logprobs", rows)

    def get_reference_policy_logprobs(self, rows: TensorDict) -> Tensor:
        """(N, S) logprobs of the rows under the reference policy's weights."""
        return self._logprobs("reference_logprobs", rows)

    def train(self, rows: TensorDict) -> list[Metrics]:
        """One update of the weights for each global batch of the rows."""
        size = self._config.train_global_batch_size
        shards = self._shards(rows.select(*train_fields(self._config)), "train", size)
        n_batches = rows.batch_size[0] // size
        updates: list[list[Metrics]] = self._workers.each(
            "train", [(*shard, n_batches) for shard in shards]
        )
        return updates[0]

    def _logprobs(self, method: str, rows: TensorDict) -> Tensor:
        placed = rows.select(*LP_SEED_FIELDS).set(_PLACE, torch.arange(rows.batch_size[0]))
        shards = self._shards(placed, "logprob")
        outputs = self._workers.each(method, shards)
        result = torch.empty(rows[INPUT_IDS].shape, dtype=torch.float32)
        for (shard, _), logprobs in zip(shards, outputs, strict=True):
            result[shard[_PLACE]] = logprobs
        return result

    def _shards(
        self, rows: TensorDict, stage: Stage, batch_size: int | None = None
    ) -> list[RankBatch]:
        packing = self._config.policy.packing
        return shard_batch_for_dp(
            rows,
            rows[INPUT_LENGTHS].tolist(),
            self._workers.world,
            batch_size,
            sequence_packing=packing.sequence_packing(stage),
            dynamic_batching=packing.dynamic_batching(stage),
        )
