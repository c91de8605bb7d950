"""The section ``grpo:``: options of the training loop, under NeMo-RL's names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel


class RewardScalingConfig(ConfigModel):
    """Options of a linear map of rewards from the source range (clipped) to the target range.

    A ``target_max`` below ``target_min`` reverses the order of the rewards.
    """

    enabled: bool = False
    source_min: float = 0.0
    source_max: float = 1.0
    target_min: float = 0.0
    target_max: float = 1.0

    @model_validator(mode="after")
    def _check_source_range(self) -> Self:
        if self.source_min >= self.source_max:
            raise ValueError("source_min must be below source_max")
        return self


class RewardShapingConfig(ConfigModel):
    """Options of DAPO's soft overlong punishment (Yu et al. 2025, equation 13).

    The penalty grows over the last ``overlong_buffer_length`` tokens before
    ``max_response_length``; longer responses get ``overlong_buffer_penalty``.
    """

    enabled: bool = False
    overlong_buffer_length: PositiveInt = 128
    overlong_buffer_penalty: NonNegativeFloat = 1.0
    max_response_length: PositiveInt | None = None  # generation.max_new_tokens by default


class AdvEstimatorConfig(ConfigModel):
    """Options of how advantages are computed from rewards, see ``algorithm.estimators``."""

    name: Literal["grpo", "reinforce_plus_plus", "gdpo"] = "grpo"
    normalize_rewards: bool | None = None  # grpo.normalize_rewards by default
    use_leave_one_out_baseline: bool | None = None  # grpo.use_leave_one_out_baseline by default
    #: Weights of the reward's components under ``gdpo``, in the order of their names; 1 by default.
    reward_weights: tuple[float, ...] | None = Field(default=None, strict=False)
    minus_baseline: bool = True  # subtract the group's mean under ``reinforce_plus_plus``


class GRPOConfig(ConfigModel):
    """Options of the training loop."""

    num_prompts_per_step: PositiveInt  # a prompt's rows form a group
    num_generations_per_prompt: PositiveInt
    #: Maximum turns of the policy in a row; the task may end the row earlier.
    max_rollout_turns: PositiveInt = 1
    max_num_steps: PositiveInt
    #: Passes over a finite set of problems, after which the run ends; null for no limit.
    max_num_epochs: PositiveInt | None = 1
    adv_estimator: AdvEstimatorConfig = AdvEstimatorConfig()
    #: Whether advantages are divided by their group's standard deviation.
    normalize_rewards: bool = True
    use_leave_one_out_baseline: bool = True  # exclude a row's own reward from its baseline
    advantage_clip_low: float | None = None  # bounds of the advantages; null for none
    advantage_clip_high: float | None = None
    overlong_filtering: bool = False  # mask rows that were cut off at the token limit
    #: Whether to train only on groups whose rewards differ (DAPO) and to generate until there are
    #: ``num_prompts_per_step`` of them.
    use_dynamic_sampling: bool = False
    dynamic_sampling_max_gen_batches: PositiveInt = 10  # of one step before the run fails
    dynamic_sampling_std_tolerance: NonNegativeFloat = 0.0  # groups up to this std are dropped
    #: Prompts per generation batch under dynamic sampling, as a multiple of a step's prompts.
    batch_multiplier: Annotated[float, Field(ge=1)] = 1.0
    #: Rows are masked if the trainer's and the generation engine's probabilities differ by more
    #: than this factor; null masks none.
    seq_logprob_error_threshold: Annotated[float, Field(gt=1)] | None = None
    reward_scaling: RewardScalingConfig = RewardScalingConfig()
    reward_shaping: RewardShapingConfig = RewardShapingConfig()
    val_period: NonNegativeInt = 10  # steps between two validations; 0 for none
    val_start_at: int = -1  # the first step of these validations
    val_at_start: bool = False
    val_at_end: bool = False
    max_val_samples: PositiveInt = 256  # problems per validation
    val_batch_size: PositiveInt | None = 256  # problems generated at once; null for all
    val_num_generations_per_prompt: PositiveInt = 1  # above 1 there is a metric ``val/pass_k``
    #: The run ends when this metric of a validation reaches the threshold: ``accuracy`` is the mean
    #: reward, ``pass_k`` the share of problems with a reward above 0 in any of their rows.
    stop_at_validation_metric: Literal["accuracy", "pass_k"] | None = None
    stop_at_validation_threshold: float | None = None
    skip_reference_policy_logprobs_calculation: bool = False  # only without a KL penalty
    seed: NonNegativeInt  # of weights, data and sampling

    @property
    def rows_per_step(self) -> int:
        """Number of rows that a step trains on."""
        return self.num_prompts_per_step * self.num_generations_per_prompt

    @property
    def normalizes_rewards(self) -> bool:
        """Whether advantages are divided by a standard deviation."""
        own = self.adv_estimator.normalize_rewards
        return self.normalize_rewards if own is None else own

    @property
    def leaves_one_out(self) -> bool:
        """Whether a row's own reward is excluded from its baseline."""
        own = self.adv_estimator.use_leave_one_out_baseline
        return self.use_leave_one_out_baseline if own is None else own

    @property
    def validates(self) -> bool:
        """Whether the run has any validations."""
        return self.val_period > 0 or self.val_at_start or self.val_at_end

    @model_validator(mode="after")
    def _check_groups(self) -> Self:
        if self.num_generations_per_prompt < 2:
            raise ValueError(
                "num_generations_per_prompt must be at least 2: in a group of one the baseline is "
                "the reward itself, and every advantage would be 0"
            )
        if self.batch_multiplier > 1 and not self.use_dynamic_sampling:
            raise ValueError("batch_multiplier needs use_dynamic_sampling: true")
        return self

    @model_validator(mode="after")
    def _check_advantage_clip(self) -> Self:
        low, high = self.advantage_clip_low, self.advantage_clip_high
        if low is not None and high is not None and low > high:
            raise ValueError(f"advantage_clip_low {low} is above advantage_clip_high {high}")
        return self

    @model_validator(mode="after")
    def _check_stop(self) -> Self:
        if (self.stop_at_validation_metric is None) != (self.stop_at_validation_threshold is None):
            raise ValueError(
                "stop_at_validation_metric and stop_at_validation_threshold need each other"
            )
        if self.stop_at_validation_metric == "pass_k" and self.val_num_generations_per_prompt == 1:
            raise ValueError("pass_k needs a val_num_generations_per_prompt above 1")
        if self.stop_at_validation_metric is not None and not self.validates:
            raise ValueError("stop_at_validation_metric needs validations, such as val_period: 10")
        return self
