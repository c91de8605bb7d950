"""What sits on any client: columns in and out, and a client that measures another."""

from rlconform.plane.columns import kv_first_write, mint_sample_ids, read_columns, write_columns
from rlconform.plane.metrics import MetricsClient, Operation, PartitionTotals

__all__ = [
    "MetricsClient",
    "Operation",
    "PartitionTotals",
    "kv_first_write",
    "mint_sample_ids",
    "read_columns",
    "write_columns",
]
