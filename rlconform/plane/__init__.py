"""What sits on any client of a plane.

columns    kv_first_write, read_columns, write_columns: a step's batch in, out, and back in
sharding   shard_meta_for_dp: which rank gets which rows, and its micro-batches
worker     DataPlaneWorkerMixin: a policy worker's shard in, one result column out
metrics    MetricsClient: a client that measures another
"""

from rlconform.plane.broadcast import (
    GroupLost,
    LeaderFailed,
    LeaderLookupFailed,
    SiblingFailed,
    SiblingGroup,
)
from rlconform.plane.columns import kv_first_write, mint_sample_ids, read_columns, write_columns
from rlconform.plane.metrics import MetricsClient, Operation, PartitionTotals
from rlconform.plane.packing import PACKING_ALGORITHMS, PackingAlgorithm, pack_sequences
from rlconform.plane.sharding import (
    DynamicBatching,
    SequencePacking,
    ShardPlan,
    plan_shards,
    shard_meta_for_dp,
)
from rlconform.plane.worker import DataPlaneWorkerMixin, ShardMismatch, WorkerBatch, WriteBack
from rlconform.plane.worker_policy import ChosenPolicy, FetchPolicy, ModelRanks, choose_policy

__all__ = [
    "PACKING_ALGORITHMS",
    "ChosenPolicy",
    "DataPlaneWorkerMixin",
    "DynamicBatching",
    "FetchPolicy",
    "GroupLost",
    "LeaderFailed",
    "LeaderLookupFailed",
    "MetricsClient",
    "ModelRanks",
    "Operation",
    "PackingAlgorithm",
    "PartitionTotals",
    "SequencePacking",
    "ShardMismatch",
    "ShardPlan",
    "SiblingFailed",
    "SiblingGroup",
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
