"""Helpers of an RL framework that work with any client of a plane.

columns          kv_first_write, read_columns, write_columns: write and read a step's columns
sharding         shard_meta_for_dp: the rows and micro-batches of every DP rank
worker_mixin     DataPlaneWorkerMixin: a policy worker fetches its shard and writes a column back
group_broadcast  ReplicaGroup: one rank of a replica reads for all of its ranks
metrics          MetricsClient: a client that measures another
"""

from rlconform.plane.columns import kv_first_write, mint_sample_ids, read_columns, write_columns
from rlconform.plane.fetch_policy import ChosenFetchPolicy, FetchPolicy, ModelRanks, choose_policy
from rlconform.plane.group_broadcast import (
    GroupLost,
    ReplicaFailed,
    ReplicaGroup,
    SourceFailed,
    SourceLookupFailed,
)
from rlconform.plane.metrics import MetricEvent, MetricsClient, PartitionTotals
from rlconform.plane.packing import PACKING_ALGORITHMS, PackingAlgorithm, pack_sequences
from rlconform.plane.sharding import (
    DynamicBatching,
    SequencePacking,
    ShardPlan,
    plan_shards,
    shard_meta_for_dp,
)
from rlconform.plane.worker_mixin import (
    DataPlaneWorkerMixin,
    ShardMismatch,
    WorkerBatch,
    WriteBack,
)

__all__ = [
    "PACKING_ALGORITHMS",
    "ChosenFetchPolicy",
    "DataPlaneWorkerMixin",
    "DynamicBatching",
    "FetchPolicy",
    "GroupLost",
    "MetricEvent",
    "MetricsClient",
    "ModelRanks",
    "PackingAlgorithm",
    "PartitionTotals",
    "ReplicaFailed",
    "ReplicaGroup",
    "SequencePacking",
    "ShardMismatch",
    "ShardPlan",
    "SourceFailed",
    "SourceLookupFailed",
    "WorkerBatch",
    "WriteBack",
    "choose_policy",
    "kv_first_write",
    "mint_sample_ids",
    "pack_sequences",
    "plan_shards",
    "read_columns",
    "shard_meta_for_dp",
    "write_columns",
]
