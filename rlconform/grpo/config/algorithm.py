"""``grpo:`` and ``loss_fn:``, the values of the algorithm, under NeMo-RL's names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

Ratio = Annotated[float, Field(gt=1)]


class RewardScalingConfig(ConfigModel):
    """A linear map of rewards from [source_min, source_max] to [target_min, target_max].

    Attributes:
        enabled: Whether rewards are scaled.
        source_min: Reward that is mapped to ``target_min``; lower rewards are clipped to it.
        source_max: Reward that is mapped to ``target_max``; higher rewards are clipped to it.
        target_min: Result for ``source_min``.
        target_max: Result for ``source_max``; below ``target_min`` it reverses the order.
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
    """DAPO's soft overlong punishment (Yu et al. 2025, equation 13).

    Attributes:
        enabled: Whether long responses are penalised.
        overlong_buffer_length: Number of tokens before ``max_response_length`` over which the
            penalty grows.
        overlong_buffer_penalty: The penalty from ``max_response_length`` on.
        max_response_length: Tokens; ``generation.max_new_tokens`` by default.
    """

    enabled: bool = False
    overlong_buffer_length: PositiveInt = 128
    overlong_buffer_penalty: NonNegativeFloat = 1.0
    max_response_length: PositiveInt | None = None


class GRPOConfig(ConfigModel):
    """The training loop.

    Attributes:
        num_prompts_per_step: Groups per step.
        num_generations_per_prompt: Rows per group.
        max_rollout_turns: Maximum turns of the policy in a row; the task may end the row earlier.
        max_num_steps: Steps of the run.
        normalize_rewards: Whether advantages are divided by their group's standard deviation.
        use_leave_one_out_baseline: Whether a row's baseline excludes its own reward.
        overlong_filtering: Whether rows that were cut off at the token limit are masked.
        use_dynamic_sampling: Whether to train only on groups whose rewards differ (DAPO) and to
            generate until there are ``num_prompts_per_step`` of them.
        dynamic_sampling_max_gen_batches: Batches generated for one step before the run fails.
        dynamic_sampling_std_tolerance: Groups whose std is at most this are dropped.
        batch_multiplier: Prompts per generation batch under dynamic sampling, as a multiple of
            ``num_prompts_per_step``.
        seq_logprob_error_threshold: Rows are masked if the trainer's and the generation engine's
            probabilities differ by more than this factor; null masks none.
        reward_scaling: Scaling of rewards.
        reward_shaping: Penalty for long responses.
        val_period: Steps between two validations; 0 for none.
        val_at_start: Whether to validate before the first step.
        max_val_samples: Problems per validation.
        seed: Seed of weights, data and sampling.
    """

    num_prompts_per_step: PositiveInt
    num_generations_per_prompt: PositiveInt
    max_rollout_turns: PositiveInt = 1
    max_num_steps: PositiveInt
    normalize_rewards: bool = True
    use_leave_one_out_baseline: bool = False
    overlong_filtering: bool = False
    use_dynamic_sampling: bool = False
    dynamic_sampling_max_gen_batches: PositiveInt = 10
    dynamic_sampling_std_tolerance: NonNegativeFloat = 0.0
    batch_multiplier: PositiveInt = 1
    seq_logprob_error_threshold: Ratio | None = None
    reward_scaling: RewardScalingConfig = RewardScalingConfig()
    reward_shaping: RewardShapingConfig = RewardShapingConfig()
    val_period: NonNegativeInt = 0
    val_at_start: bool = False
    max_val_samples: PositiveInt = 64
    seed: NonNegativeInt

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
    """The clipped policy-gradient loss.

    Attributes:
        ratio_clip_min: Ratios are clipped below at 1 - ``ratio_clip_min`` (PPO, Schulman et al.
            2017).
        ratio_clip_max: Ratios are clipped above at 1 + ``ratio_clip_max``; a larger value than
            ``ratio_clip_min`` is DAPO's clip-higher.
        ratio_clip_c: Dual clip (Ye et al. 2020): a token with a negative advantage A costs at most
            -c A; above 1, null for no bound.
        reference_policy_kl_penalty: Weight of the KL to the reference policy; 0 for no reference.
        reference_policy_kl_type: Estimator of that KL (Schulman 2020).
        token_level_loss: Whether to take the mean over the global batch's tokens (DAPO), else over
            the means of its rows (GRPO).
        use_importance_sampling_correction: Whether tokens are weighted by the ratio of the
            trainer's to the generation engine's probabilities, which differ because of other
            kernels or older weights.
        truncated_importance_sampling_ratio: Upper bound of these weights; null for none.
    """

    ratio_clip_min: Annotated[float, Field(ge=0, lt=1)] = 0.2
    ratio_clip_max: NonNegativeFloat = 0.2
    ratio_clip_c: Ratio | None = None
    reference_policy_kl_penalty: NonNegativeFloat = 0.0
    reference_policy_kl_type: Literal["k3"] = "k3"
    token_level_loss: bool = True
    use_importance_sampling_correction: bool = False
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
