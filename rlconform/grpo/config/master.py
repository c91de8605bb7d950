"""``MasterConfig``: the whole tree, with the checks across its sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from rlconform.backends.config import DataPlaneConfig, parse_data_plane
from rlconform.grpo.config.algorithm import ClippedPGLossConfig, GRPOConfig
from rlconform.grpo.config.base import ConfigModel
from rlconform.grpo.config.infrastructure import (
    CheckpointingConfig,
    ClusterConfig,
    DataConfig,
    GenerationConfig,
    LoggerConfig,
)
from rlconform.grpo.config.policy import PolicyConfig


def _data_plane(block: Any) -> DataPlaneConfig:
    if isinstance(block, DataPlaneConfig):
        return block
    if not isinstance(block, Mapping):
        raise ValueError("not a mapping of keys to values")
    return parse_data_plane(block)


class MasterConfig(ConfigModel):
    """One run.

    Attributes:
        policy: The model.
        grpo: The training loop.
        loss_fn: The loss.
        data: The task and its problems.
        generation: The generation engine.
        data_plane: The data plane, see ``backends.config``; with ``enabled: false`` the legacy
            trainer runs, which keeps batches in memory.
        cluster: The policy workers.
        checkpointing: Checkpoints.
        logger: Metrics.
    """

    policy: PolicyConfig
    grpo: GRPOConfig
    loss_fn: ClippedPGLossConfig = ClippedPGLossConfig()
    data: DataConfig
    generation: GenerationConfig
    data_plane: Annotated[SerializeAsAny[DataPlaneConfig], BeforeValidator(_data_plane)]
    cluster: ClusterConfig = ClusterConfig()
    checkpointing: CheckpointingConfig = CheckpointingConfig()
    logger: LoggerConfig = LoggerConfig()

    @property
    def train_global_batch_size(self) -> int:
        """Rows of one optimizer step."""
        return self.policy.train_global_batch_size or self.grpo.rows_per_step

    @model_validator(mode="after")
    def _check_batch_sizes(self) -> Self:
        rows, size, ranks = (
            self.grpo.rows_per_step,
            self.train_global_batch_size,
            self.cluster.dp_size,
        )
        if rows % size:
            raise ValueError(
                f"a step has {rows} rows (num_prompts_per_step x num_generations_per_prompt), not "
                f"a multiple of policy.train_global_batch_size {size}"
            )
        if size % ranks:
            raise ValueError(
                f"a global batch of {size} rows can't be split evenly over cluster.dp_size {ranks}"
            )
        return self

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        validates = self.grpo.val_period > 0 or self.grpo.val_at_start
        if validates and self.data.task == "jsonl" and self.data.val_path is None:
            raise ValueError("validation needs data.val_path; without it set grpo.val_period to 0")
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.generation.max_new_tokens >= self.policy.max_total_sequence_length:
            raise ValueError(
                f"generation.max_new_tokens {self.generation.max_new_tokens} leaves no room for a "
                f"prompt in policy.max_total_sequence_length "
                f"{self.policy.max_total_sequence_length}"
            )
        return self
