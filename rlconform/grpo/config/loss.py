"""The section ``loss_fn:``: options of the clipped policy-gradient loss, under NeMo-RL's names."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator

from rlconform.grpo.config.base import ConfigModel

#: By option, the options that it excludes, because one of them would have no effect.
_EXCLUDES = {
    "disable_ppo_ratio": ("force_on_policy_ratio", "ratio_clip_c"),
    "sequence_level_importance_ratios": ("token_level_loss",),
    "use_cispo": (
        "disable_ppo_ratio",
        "force_on_policy_ratio",
        "sequence_level_importance_ratios",
        "ratio_clip_c",
    ),
}


class ClippedPGLossConfig(ConfigModel):
    """Options of the loss; ``algorithm.loss`` has the formulas."""

    #: Ratios are clipped to [1 - ``ratio_clip_min``, 1 + ``ratio_clip_max``] (PPO, Schulman et al.
    #: 2017); a larger upper value is DAPO's clip-higher.
    ratio_clip_min: Annotated[float, Field(ge=0, le=1)] = 0.2
    ratio_clip_max: NonNegativeFloat = 0.2
    #: Dual clip (Ye et al. 2020): a token with a negative advantage A costs at most -c A; null for
    #: no bound.
    ratio_clip_c: Annotated[float, Field(gt=1)] | None = None
    disable_ppo_ratio: bool = False  # REINFORCE: the logprob in place of the clipped ratio
    #: Take the current weights for the old ones, so that every ratio is 1; only for one update per
    #: step.
    force_on_policy_ratio: bool = False
    #: One ratio and one importance weight per row instead of one per token (GSPO).
    sequence_level_importance_ratios: bool = False
    use_cispo: bool = False  # clip the ratio as a weight without gradient (MiniMax-M1)
    #: Whether to take the mean over the global batch's tokens (DAPO), else over the means of its
    #: rows (GRPO).
    token_level_loss: bool = True

    reference_policy_kl_penalty: NonNegativeFloat = 0.01  # 0 for no reference policy
    reference_policy_kl_type: Literal["k1", "k2", "k3"] = "k3"  # Schulman 2020
    #: ``unbiased``: the gradient of the reverse KL divergence in expectation (Tang and Munos 2025),
    #: as in NeMo-RL; ``direct``: the gradient of the estimate itself, as in DeepSeekMath.
    reference_policy_kl_gradient: Literal["unbiased", "direct"] = "unbiased"
    kl_input_clamp_value: PositiveFloat | None = 20.0  # bound of the log ratio; null for none
    kl_output_clamp_value: PositiveFloat | None = 10.0  # bound of the estimate; null for none
    #: Weigh the penalty by the ratio of the policy's to the generation engine's probabilities.
    use_on_policy_kl_approximation: bool = False
    use_kl_in_reward: bool = False  # subtract the penalty from the advantages, not in the loss

    #: Whether tokens are weighted by the ratio of the trainer's to the generation engine's
    #: probabilities, which differ because of other kernels or older weights.
    use_importance_sampling_correction: bool = False
    #: What happens to weights outside [``_ratio_min``, ``_ratio``]: ``tis`` clips them, ``icepop``
    #: sets them to 0, ``seq-mask-tis`` drops rows whose geometric mean is outside; null: nothing.
    truncated_importance_sampling_type: Literal["tis", "icepop", "seq-mask-tis"] | None = None
    truncated_importance_sampling_ratio: PositiveFloat | None = None
    truncated_importance_sampling_ratio_min: NonNegativeFloat | None = None  # null is 0 for tis

    @property
    def needs_reference_policy(self) -> bool:
        """Whether a step computes the reference policy's logprobs."""
        return self.reference_policy_kl_penalty > 0

    @property
    def kl_penalty_in_loss(self) -> float:
        """The factor of the penalty in the loss; 0 if the penalty is part of the rewards."""
        return 0.0 if self.use_kl_in_reward else self.reference_policy_kl_penalty

    @model_validator(mode="after")
    def _check_exclusions(self) -> Self:
        for name, excluded in _EXCLUDES.items():
            for other in excluded:
                if getattr(self, name) and getattr(self, other):
                    raise ValueError(f"{name} excludes {other}: set {other} to false or null")
        if self.use_cispo and not self.token_level_loss:
            raise ValueError("use_cispo needs token_level_loss: true")
        return self

    @model_validator(mode="after")
    def _check_truncation(self) -> Self:
        prefix = "truncated_importance_sampling"
        kind, high = (
            self.truncated_importance_sampling_type,
            self.truncated_importance_sampling_ratio,
        )
        low = self.truncated_importance_sampling_ratio_min
        if (kind is None) != (high is None) or (kind is None and low is not None):
            raise ValueError(f"{prefix}_type and {prefix}_ratio need each other")
        if kind is None or high is None:
            return self
        if not self.use_importance_sampling_correction:
            raise ValueError(f"{prefix}_ratio needs use_importance_sampling_correction: true")
        if kind != "tis" and low is None:
            raise ValueError(f"{kind} needs {prefix}_ratio_min")
        if low is not None and low > high:
            raise ValueError(f"{prefix}_ratio_min {low} is above {prefix}_ratio {high}")
        if kind == "seq-mask-tis" and self.sequence_level_importance_ratios:
            raise ValueError("seq-mask-tis excludes sequence_level_importance_ratios")
        return self
