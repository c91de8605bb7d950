"""``LegacyPolicy``: sends batches from the driver's memory to the ranks and joins their results.

    rows (N, S) ── shard_batch_for_dp ──▶ each rank gets its rows as arguments
    logprobs (N, S) ◀── restored order ── the ranks' results

``PlanePolicy`` does the same through a data plane; parity tests compare the two.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.contract import ConfigError
from rlconform.contract.fields import INPUT_IDS, INPUT_LENGTHS, LP_SEED_FIELDS
from rlconform.grpo.config import MasterConfig, Stage
from rlconform.grpo.router_replay.trace import trace_folder
from rlconform.grpo.trainers.driver_step import replay_fields, train_fields
from rlconform.grpo.trainers.legacy_sharding import RankBatch, shard_batch_for_dp
from rlconform.grpo.workers.policy import Metrics
from rlconform.grpo.workers.policy_worker import PolicyWorker
from rlconform.grpo.workers.rank_layout import RankLayout
from rlconform.grpo.workers.worker_group import WorkerGroup

#: Column (N,) with each row's position before sharding.
_POSITION = "position"


class LegacyPolicy:
    """Shards batches over the ranks, and joins the ranks' results.

    ``ConfigError`` under ``policy.witness``, or with a trace of router replay, because rows in
    memory don't bring their sample ids.
    """

    def __init__(self, workers: WorkerGroup, config: MasterConfig) -> None:
        if config.policy.witness:
            raise ConfigError("policy.witness needs a data plane: data_plane.enabled is false")
        trace_folder(config)  # refuses a trace
        self._workers = workers
        self._config = config
        self._layout = RankLayout.of(config.policy, workers.world)

    def get_logprobs(self, rows: TensorDict) -> Tensor:
        """Compute (N, S) logprobs under the policy's weights."""
        return self._logprobs(PolicyWorker.logprobs, rows)

    def get_reference_policy_logprobs(self, rows: TensorDict) -> Tensor:
        """Compute (N, S) logprobs under the reference policy's weights."""
        return self._logprobs(PolicyWorker.reference_logprobs, rows)

    def train(self, rows: TensorDict) -> list[Metrics]:
        """Update the weights once per global batch."""
        size = self._config.train_global_batch_size
        shards = self._shards(rows.select(*train_fields(self._config)), "train", size)
        n_batches = rows.batch_size[0] // size
        updates = self._workers.each_replica(
            PolicyWorker.train, self._layout, [(*shard, n_batches) for shard in shards]
        )
        return updates[0]

    def _logprobs(self, method: Callable[..., Tensor], rows: TensorDict) -> Tensor:
        seeds = rows.select(*LP_SEED_FIELDS, *replay_fields(self._config))
        positioned = seeds.set(_POSITION, torch.arange(rows.batch_size[0]))
        shards = self._shards(positioned, "logprob")
        outputs = self._workers.each_replica(method, self._layout, shards)
        result = torch.empty(rows[INPUT_IDS].shape, dtype=torch.float32)
        for (shard, _), logprobs in zip(shards, outputs, strict=True):
            result[shard[_POSITION]] = logprobs
        return result

    def _shards(
        self, rows: TensorDict, stage: Stage, batch_size: int | None = None
    ) -> list[RankBatch]:
        packing = self._config.policy.packing
        return shard_batch_for_dp(
            rows,
            rows[INPUT_LENGTHS].tolist(),
            self._layout.dp,
            batch_size,
            sequence_packing=packing.sequence_packing(stage),
            dynamic_batching=packing.dynamic_batching(stage),
        )
