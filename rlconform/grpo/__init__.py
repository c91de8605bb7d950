"""The reference GRPO: what a trainer does with a data plane, and what it did before it had one."""

from rlconform.grpo.filters import (
    BaseRolloutFilter,
    MissingTag,
    NoCurrentVersion,
    RolloutFilterError,
    Split,
    StalenessFilter,
    WrongVersion,
)
from rlconform.grpo.legacy import RankBatch, shard_batch_for_dp

__all__ = [
    "BaseRolloutFilter",
    "MissingTag",
    "NoCurrentVersion",
    "RankBatch",
    "RolloutFilterError",
    "Split",
    "StalenessFilter",
    "WrongVersion",
    "shard_batch_for_dp",
]
