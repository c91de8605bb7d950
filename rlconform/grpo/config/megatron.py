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
    virtual_pipeline_model_parallel_size: PositiveInt | None = None  # above 1 not supported
    #: Ranks that each get a part of every row; above 1 it needs Transformer Engine.
    context_parallel_size: PositiveInt = 1
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

    @property
    def row_multiple(self) -> int:
        """The number of which a row's tokens must be a multiple, for context parallelism."""
        return 2 * self.context_parallel_size if self.context_parallel_size > 1 else 1

    @property
    def width_multiple(self) -> int:
        """The number of which a micro-batch's width must be a multiple."""
        return self.row_multiple * (
            self.tensor_model_parallel_size if self.sequence_parallel else 1
        )

    @model_validator(mode="after")
    def _check_supported(self) -> Self:
        if self.sequence_parallel and self.tensor_model_parallel_size == 1:
            raise ValueError("sequence_parallel needs tensor_model_parallel_size above 1")
        return self
