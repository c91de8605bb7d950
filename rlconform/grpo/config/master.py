"""``MasterConfig``: the whole configuration, with the checks that concern several sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, SerializeAsAny, model_validator

from rlconform.backends.config import DataPlaneConfig, parse_data_plane
from rlconform.grpo.config.algorithm import GRPOConfig
from rlconform.grpo.config.async_rl import AsyncRLConfig, check_async, check_periods
from rlconform.grpo.config.base import ConfigModel
from rlconform.grpo.config.infrastructure import (
    CheckpointingConfig,
    ClusterConfig,
    DataConfig,
    GenerationConfig,
    LoggerConfig,
)
from rlconform.grpo.config.loss import ClippedPGLossConfig
from rlconform.grpo.config.policy import PolicyConfig
from rlconform.grpo.config.rewards import (
    CustomRewardFunctionConfig,
    RewardLoopConfig,
    RewardModelConfig,
)


def _data_plane(block: Any) -> DataPlaneConfig:
    if isinstance(block, DataPlaneConfig):
        return block
    if not isinstance(block, Mapping):
        raise ValueError("not a mapping of keys to values")
    return parse_data_plane(block)


class MasterConfig(ConfigModel):
    """The whole configuration of a run."""

    policy: PolicyConfig
    grpo: GRPOConfig
    loss_fn: ClippedPGLossConfig = ClippedPGLossConfig()
    data: DataConfig
    generation: GenerationConfig
    #: See ``backends.config``; with ``enabled: false`` the legacy trainer keeps rows in memory.
    data_plane: Annotated[SerializeAsAny[DataPlaneConfig], BeforeValidator(_data_plane)]
    #: See ``config.async_rl``; without it rollouts and training take turns.
    async_rl: AsyncRLConfig | None = None
    #: See ``config.rewards``; by default the task's own rule rewards its rows.
    reward_model: RewardModelConfig = RewardModelConfig()
    custom_reward_function: CustomRewardFunctionConfig | None = None
    reward_loop: RewardLoopConfig = RewardLoopConfig()
    cluster: ClusterConfig = ClusterConfig()
    checkpointing: CheckpointingConfig = CheckpointingConfig()
    logger: LoggerConfig = LoggerConfig()

    @property
    def train_global_batch_size(self) -> int:
        """Number of rows of one optimizer step."""
        return self.policy.train_global_batch_size or self.grpo.rows_per_step

    @model_validator(mode="after")
    def _check_batch_sizes(self) -> Self:
        rows, size = self.grpo.rows_per_step, self.train_global_batch_size
        if rows % size:
            raise ValueError(
                f"a step has {rows} rows (num_prompts_per_step x num_generations_per_prompt), not "
                f"a multiple of policy.train_global_batch_size {size}"
            )
        if size % self.cluster.dp_size:
            raise ValueError(
                f"a global batch of {size} rows can't be split evenly over cluster.dp_size "
                f"{self.cluster.dp_size}"
            )
        return self

    @model_validator(mode="before")
    @classmethod
    def _refuse_legacy_async_block(cls, tree: Any) -> Any:
        grpo = tree.get("grpo") if isinstance(tree, Mapping) else None
        if isinstance(grpo, Mapping) and grpo.get("async_grpo") is not None:
            raise ValueError("there is no key grpo.async_grpo: use the section async_rl")
        return tree

    @model_validator(mode="after")
    def _check_async(self) -> Self:
        if self.async_rl is None:
            return self
        if not self.data_plane.enabled:
            raise ValueError("async_rl needs a data plane: set data_plane.enabled: true")
        updates = self.grpo.rows_per_step // self.train_global_batch_size
        check_async(self.async_rl, self.grpo.num_prompts_per_step, updates)
        periods = {"grpo.val_period": self.grpo.val_period}
        if self.checkpointing.enabled:
            periods["checkpointing.save_period"] = self.checkpointing.save_period
        check_periods(self.async_rl, periods)
        name, prompts = self.grpo.adv_estimator.name, self.grpo.num_prompts_per_step
        chunk = self.async_rl.min_groups_for_streaming_train
        if name == "reinforce_plus_plus" and chunk < prompts:
            raise ValueError(
                f"async_rl.min_groups_for_streaming_train is {chunk}, and grpo.adv_estimator.name "
                f"{name} normalises over a step's {prompts} prompts at once: set it to {prompts}"
            )
        return self

    @model_validator(mode="after")
    def _check_servers(self) -> Self:
        if self.generation.backend == "http" and self.cluster.rollout_workers != 1:
            raise ValueError(
                "generation.backend http needs cluster.rollout_workers: 1; one worker keeps all "
                "servers busy, and several would change their weights at different times"
            )
        return self

    @model_validator(mode="after")
    def _check_router_replay(self) -> Self:
        backend = self.generation.backend
        if self.policy.router_replay.enabled and backend != "transformers":
            raise ValueError(
                "policy.router_replay needs generation.backend: transformers; the experts that "
                f"{backend} chooses are not recorded"
            )
        return self

    @model_validator(mode="after")
    def _check_rewards(self) -> Self:
        if self.reward_model.enable and self.custom_reward_function is not None:
            raise ValueError(
                "reward_model.enable and custom_reward_function can't both reward the rows: set one"
            )
        if self.reward_model.sleep_while_generating and self.async_rl is not None:
            raise ValueError(
                "reward_model.sleep_while_generating needs a synchronous run: with async_rl rows "
                "are scored while others are generated"
            )
        return self

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.grpo.validates and self.data.task == "jsonl" and self.data.val_path is None:
            raise ValueError("validation needs data.val_path; without it set grpo.val_period to 0")
        if self.grpo.val_num_generations_per_prompt > 1 and self.generation.val_greedy:
            raise ValueError(
                "grpo.val_num_generations_per_prompt above 1 needs generation.val_greedy: false; "
                "greedy rows of a problem are all equal"
            )
        return self

    @model_validator(mode="after")
    def _check_loss(self) -> Self:
        loss, grpo = self.loss_fn, self.grpo
        if loss.force_on_policy_ratio and self.train_global_batch_size != grpo.rows_per_step:
            raise ValueError(
                "loss_fn.force_on_policy_ratio needs one update per step: set "
                f"policy.train_global_batch_size to {grpo.rows_per_step} or null"
            )
        if loss.use_kl_in_reward and grpo.adv_estimator.name != "reinforce_plus_plus":
            raise ValueError(
                "loss_fn.use_kl_in_reward needs grpo.adv_estimator.name: reinforce_plus_plus; the "
                "other estimators ignore the penalty"
            )
        if grpo.skip_reference_policy_logprobs_calculation and loss.needs_reference_policy:
            raise ValueError(
                "grpo.skip_reference_policy_logprobs_calculation needs "
                "loss_fn.reference_policy_kl_penalty: 0"
            )
        return self

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        response, row = self.generation.max_new_tokens, self.policy.max_total_sequence_length
        if response >= row:
            raise ValueError(
                f"generation.max_new_tokens {response} leaves no room for a prompt in "
                f"policy.max_total_sequence_length {row}"
            )
        return self
