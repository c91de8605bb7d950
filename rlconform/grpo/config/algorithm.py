"""The sections ``grpo:`` and ``loss_fn:``: options of the algorithm, under NeMo-RL's names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

Ratio = Annotated[float, Field(gt=1)]


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


class GRPOConfig(ConfigModel):
    """Options of the training loop."""

    num_prompts_per_step: PositiveInt  # a prompt's rows form a group
    num_generations_per_prompt: PositiveInt
    #: Maximum turns of the policy in a row; the task may end the row earlier.
    max_rollout_turns: PositiveInt = 1
    max_num_steps: PositiveInt
    #: Whether advantages are divided by their group's standard deviation.
    normalize_rewards: bool = True
    use_leave_one_out_baseline: bool = False  # exclude a row's own reward from its baseline
    overlong_filtering: bool = False  # mask rows that were cut off at the token limit
    #: Whether to train only on groups whose rewards differ (DAPO) and to generate until there are
    #: ``num_prompts_per_step`` of them.
    use_dynamic_sampling: bool = False
    dynamic_sampling_max_gen_batches: PositiveInt = 10  # of one step before the run fails
    dynamic_sampling_std_tolerance: NonNegativeFloat = 0.0  # groups up to this std are dropped
    #: Prompts per generation batch under dynamic sampling, as a multiple of a step's prompts.
    batch_multiplier: PositiveInt = 1
    #: Rows are masked if the trainer's and the generation engine's probabilities differ by more
    #: than this factor; null masks none.
    seq_logprob_error_threshold: Ratio | None = None
    reward_scaling: RewardScalingConfig = RewardScalingConfig()
    reward_shaping: RewardShapingConfig = RewardShapingConfig()
    val_period: NonNegativeInt = 0  # steps between two validations; 0 for none
    val_at_start: bool = False
    max_val_samples: PositiveInt = 64  # problems per validation
    seed: NonNegativeInt  # of weights, data and sampling

    @property
    def rows_per_step(self) -> int:
        """Number of rows that a step trains on."""
        return self.num_prompts_per_step * self.num_generations_per_prompt

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


class ClippedPGLossConfig(ConfigModel):
    """Options of the clipped policy-gradient loss."""

    #: Ratios are clipped to [1 - ``ratio_clip_min``, 1 + ``ratio_clip_max``] (PPO, Schulman et al.
    #: 2017); a larger upper value is DAPO's clip-higher.
    ratio_clip_min: Annotated[float, Field(ge=0, lt=1)] = 0.2
    ratio_clip_max: NonNegativeFloat = 0.2
    #: Dual clip (Ye et al. 2020): a token with a negative advantage A costs at most -c A; null for
    #: no bound.
    ratio_clip_c: Ratio | None = None
    reference_policy_kl_penalty: NonNegativeFloat = 0.0  # 0 for no reference policy
    reference_policy_kl_type: Literal["k3"] = "k3"  # Schulman 2020
    #: Whether to take the mean over the global batch's tokens (DAPO), else over the means of its
    #: rows (GRPO).
    token_level_loss: bool = True
    #: Whether tokens are weighted by the ratio of the trainer's to the generation engine's
    #: probabilities, which differ because of other kernels or older weights.
    use_importance_sampling_correction: bool = False
    #: Upper bound of these weights; null for no bound.
    truncated_importance_sampling_ratio: Annotated[float, Field(gt=0)] | None = None

    @property
    def needs_reference_policy(self) -> bool:
        """Whether the loss reads the reference policy's logprobs."""
        return self.reference_policy_kl_penalty > 0

    @model_validator(mode="after")
    def _check_truncation(self) -> Self:
        bounded = self.truncated_importance_sampling_ratio is not None
        if bounded and not self.use_importance_sampling_correction:
            raise ValueError(
                "truncated_importance_sampling_ratio needs use_importance_sampling_correction: true"
            )
        return self
