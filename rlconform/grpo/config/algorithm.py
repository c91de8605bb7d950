"""``grpo:`` and ``loss_fn:``, the algorithm's own values, under NeMo-RL's names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator

from rlconform.grpo.config.base import ConfigModel

Ratio = Annotated[float, Field(gt=1)]


class RewardScalingConfig(ConfigModel):
    """A straight line from rewards in [source_min, source_max] to [target_min, target_max].

    Attributes:
        enabled: Whether rewards are scaled.
        source_min: Reward that becomes ``target_min``; lower ones are taken as it.
        source_max: Reward that becomes ``target_max``; higher ones are taken as it.
        target_min: See above.
        target_max: See above.
    """

    enabled: bool = False
    source_min: float = 0.0
    source_max: float = 1.0
    target_min: float = 0.0
    target_max: float = 1.0

    @model_validator(mode="after")
    def _the_source_has_a_width(self) -> Self:
        if self.source_min >= self.source_max:
            raise ValueError("source_min must be below source_max")
        return self


class RewardShapingConfig(ConfigModel):
    """DAPO's soft overlong punishment (Yu et al. 2025, equation 13).

    Attributes:
        enabled: Whether long responses are punished.
        overlong_buffer_length: Tokens before ``max_response_length`` over which it grows.
        overlong_buffer_penalty: The punishment at ``max_response_length``.
        max_response_length: Tokens; ``generation.max_new_tokens`` by default.
    """

    enabled: bool = False
    overlong_buffer_length: PositiveInt = 128
    overlong_buffer_penalty: NonNegativeFloat = 1.0
    max_response_length: PositiveInt | None = None


class GRPOConfig(ConfigModel):
    """The loop.

    Attributes:
        num_prompts_per_step: Groups that a step trains on.
        num_generations_per_prompt: Rows of a group.
        max_rollout_turns: Most turns of the policy in a row; the task may end it earlier.
        max_num_steps: Steps of the run.
        normalize_rewards: Whether advantages are divided by their group's standard deviation.
        use_leave_one_out_baseline: Whether a row's baseline leaves out its own reward.
        overlong_filtering: Whether rows that were cut off before their end are masked.
        use_dynamic_sampling: DAPO: only groups whose rewards differ are trained on, and sampling
            goes on until there are ``num_prompts_per_step`` of them.
        dynamic_sampling_max_gen_batches: Batches generated for one step before that is given up.
        dynamic_sampling_std_tolerance: A standard deviation up to it counts as none.
        batch_multiplier: Prompts generated at once under dynamic sampling, as a multiple of
            ``num_prompts_per_step``.
        seq_logprob_error_threshold: Rows whose logprobs by the trainer and by the generation engine
            differ by more than this factor are masked; null for none.
        reward_scaling: Scaling of rewards.
        reward_shaping: Punishment of long responses.
        val_period: Steps between two validations; 0 for none.
        val_at_start: Whether to validate before the first step.
        max_val_samples: Problems of a validation.
        seed: Of weights, data and sampling.
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
        """Rows that a step trains on."""
        return self.num_prompts_per_step * self.num_generations_per_prompt

    @model_validator(mode="after")
    def _groups_are_large_enough(self) -> Self:
        if self.num_generations_per_prompt < 2:
            raise ValueError(
                "num_generations_per_prompt must be at least 2: a group of one has no baseline "
                "but itself, and every advantage would be 0"
            )
        if self.batch_multiplier > 1 and not self.use_dynamic_sampling:
            raise ValueError("batch_multiplier is for use_dynamic_sampling: true")
        return self


class ClippedPGLossConfig(ConfigModel):
    """The clipped policy-gradient loss.

    Attributes:
        ratio_clip_min: Ratios below 1 - it are clipped (PPO, Schulman et al. 2017).
        ratio_clip_max: Ratios above 1 + it are clipped; larger than the other for DAPO's
            clip-higher.
        ratio_clip_c: Bound of the loss under negative advantages, above 1 (dual clip, Ye et al.
            2020); null for none.
        reference_policy_kl_penalty: Weight of the KL to the reference policy; 0 for no reference.
        reference_policy_kl_type: Estimator of that KL (Schulman 2020).
        token_level_loss: Mean over the global batch's tokens (DAPO), else over its rows' means.
        use_importance_sampling_correction: Whether tokens are weighted by the ratio of the
            trainer's to the generation engine's probabilities.
        truncated_importance_sampling_ratio: Most that such a weight may be; null for no bound.
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
    def _a_bound_bounds_something(self) -> Self:
        bounded = self.truncated_importance_sampling_ratio is not None
        if bounded and not self.use_importance_sampling_correction:
            raise ValueError(
                "truncated_importance_sampling_ratio needs use_importance_sampling_correction: true"
            )
        return self
