"""``RankLayout``: which part of the model and which rows each rank works on; pure functions.

    tp = 2, pp = 2, dp = 2                 pp 0         pp 1
                                   dp 0    0  1         4  5      a replica: ranks 0, 1, 4, 5
                                   dp 1    2  3         6  7      a replica: ranks 2, 3, 6, 7
                                        tp 0  1      tp 0  1

Ranks are numbered as Megatron-core numbers them: tp first, then cp, dp and pp. The first rank of a
replica, with tp = cp = pp = 0, writes its results.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlconform.contract import ConfigError
from rlconform.grpo.config import PolicyConfig
from rlconform.grpo.config.megatron import FetchPolicy
from rlconform.plane import ModelRanks


@dataclass(frozen=True)
class RankLayout:
    """The sizes of the dimensions over which the ranks divide the work."""

    dp: int
    tp: int = 1
    cp: int = 1
    pp: int = 1

    @classmethod
    def of(cls, config: PolicyConfig, world: int) -> RankLayout:
        """Divide the ranks into replicas of the model; without Megatron each rank has one.

        ``ConfigError`` if the ranks don't fill the replicas, or the experts' groups.
        """
        megatron = config.megatron_cfg
        if not megatron.enabled:
            return cls(world)
        tp, pp = megatron.tensor_model_parallel_size, megatron.pipeline_model_parallel_size
        if world % megatron.replica_ranks:
            raise ConfigError(
                f"policy.megatron_cfg: expected a multiple of {megatron.replica_ranks} ranks, "
                f"which hold one replica of the model; got {world}"
            )
        experts = megatron.expert_model_parallel_size
        if world // pp % experts:
            raise ConfigError(
                f"policy.megatron_cfg.expert_model_parallel_size {experts} must divide the "
                f"{world // pp} ranks of a pipeline stage"
            )
        dp = world // megatron.replica_ranks
        return cls(dp, tp, megatron.context_parallel_size, pp)

    @property
    def world(self) -> int:
        """Number of ranks."""
        return self.tp * self.cp * self.dp * self.pp

    def dp_rank(self, rank: int) -> int:
        """Return the number of the replica that the rank belongs to."""
        return rank // (self.tp * self.cp) % self.dp

    def model_ranks(self, rank: int) -> ModelRanks:
        """Return the rank's place in its replica."""
        return ModelRanks(
            tp=rank % self.tp,
            cp=rank // self.tp % self.cp,
            pp=rank // (self.tp * self.cp * self.dp),
        )

    def replica(self, dp_rank: int) -> list[int]:
        """Return the ranks of a replica; the first one writes."""
        return [rank for rank in range(self.world) if self.dp_rank(rank) == dp_rank]

    @property
    def writers(self) -> list[int]:
        """Return the rank of each replica that writes its results."""
        return [self.replica(dp_rank)[0] for dp_rank in range(self.dp)]

    def has_leader(self, policy: FetchPolicy) -> bool:
        """Return whether one rank of each replica reads the rows for all of its ranks.

        ``auto`` is NeMo-RL's rule: only with context parallelism, whose ranks get different parts
        of the same rows.
        """
        if policy == "auto":
            return self.cp > 1
        return policy == "leader" and self.world > self.dp
