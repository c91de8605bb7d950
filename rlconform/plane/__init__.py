"""Helpers for an RL framework; they work with any client of a data plane.

columns          kv_first_write, read_columns, write_columns: write and read a step's columns
sharding         shard_meta_for_dp: the rows and micro-batches of every DP rank
worker_mixin     DataPlaneWorkerMixin: a policy worker fetches its shard and writes a column back
group_broadcast  ReplicaGroup: one rank of a replica reads for all of its ranks
metrics          MetricsClient: a client that wraps and measures another client
event_client     EventClient: a client that wraps another and writes its calls into the event log
"""

from rlconform.plane.columns import kv_first_write, mint_sample_ids, read_columns, write_columns
from rlconform.plane.event_client import EventClient
from rlconform.plane.group_broadcast import ReplicaGroup
from rlconform.plane.metrics import MetricEvent, MetricsClient
from rlconform.plane.sharding import DynamicBatching, SequencePacking, shard_meta_for_dp
from rlconform.plane.worker_mixin import DataPlaneWorkerMixin, ModelRanks

__all__ = [
    "DataPlaneWorkerMixin",
    "DynamicBatching",
    "EventClient",
    "MetricEvent",
    "MetricsClient",
    "ModelRanks",
    "ReplicaGroup",
    "SequencePacking",
    "kv_first_write",
    "mint_sample_ids",
    "read_columns",
    "shard_meta_for_dp",
    "write_columns",
]
