"""The section ``policy.megatron_cfg:``: how Megatron-core shards the model over ranks."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

FetchPolicy = Literal["auto", "leader", "independent"]


class MegatronOptimizerConfig(ConfigModel):
    """Options of Megatron's optimizer; the rest is in ``policy.optimizer``."""

    #: Each data-parallel rank holds a part of the optimizer's state (ZeRO-1).
    use_distributed_optimizer: bool = False


class MegatronConfig(ConfigModel):
    """Options of Megatron-core under NeMo-RL's names; the ranks of a replica are tp x cp x pp."""

    enabled: bool = False
    tensor_model_parallel_size: PositiveInt = 1
    pipeline_model_parallel_size: PositiveInt = 1
    virtual_pipeline_model_parallel_size: PositiveInt | None = None  # not supported
    context_parallel_size: PositiveInt = 1  # above 1 not supported
    expert_model_parallel_size: PositiveInt = 1  # it takes ranks of tp and dp, and adds none
    sequence_parallel: bool = False
    #: Layers are computed again in the backward pass instead of being kept.
    activation_checkpointing: bool = False
    optimizer: MegatronOptimizerConfig = MegatronOptimizerConfig()
    #: Who reads a replica's rows from the plane, see ``workers.rank_layout``: rank 0 for all of
    #: them (``leader``), or each rank for itself (``independent``).
    fetch_policy: FetchPolicy = "auto"

    @property
    def replica_ranks(self) -> int:
        """Number of ranks that hold one replica of the model."""
        if not self.enabled:
            return 1
        sizes = self.tensor_model_parallel_size * self.context_parallel_size
        return sizes * self.pipeline_model_parallel_size

    @model_validator(mode="after")
    def _check_supported(self) -> Self:
        for key in ("context_parallel_size", "virtual_pipeline_model_parallel_size"):
            if (getattr(self, key) or 1) > 1:
                raise ValueError(f"{key} must be 1: only one context and pipeline chunk per rank")
        if self.sequence_parallel and self.tensor_model_parallel_size == 1:
            raise ValueError("sequence_parallel needs tensor_model_parallel_size above 1")
        return self
