"""Options of the loss: one set of options for each of its variants."""

from __future__ import annotations

from typing import Any

import pytest

from rlconform.grpo.config import ClippedPGLossConfig

PLAIN = ClippedPGLossConfig(reference_policy_kl_penalty=0.0)
CORRECTED: dict[str, Any] = {
    "use_importance_sampling_correction": True,
    "truncated_importance_sampling_type": "tis",
    "truncated_importance_sampling_ratio": 1.5,
}
ALL_TERMS = ClippedPGLossConfig(
    ratio_clip_min=0.2,
    ratio_clip_max=0.28,
    ratio_clip_c=3.0,
    reference_policy_kl_penalty=0.05,
    reference_policy_kl_gradient="direct",
    **CORRECTED,
)
GSPO: dict[str, Any] = {
    "sequence_level_importance_ratios": True,
    "token_level_loss": False,
    "ratio_clip_min": 0.01,
    "ratio_clip_max": 0.01,
}


def replace(options: ClippedPGLossConfig, **changes: Any) -> ClippedPGLossConfig:
    """The options with some of them changed, validated again."""
    return ClippedPGLossConfig(**{**options.model_dump(), **changes})


def truncated(kind: str, low: float | None, high: float) -> ClippedPGLossConfig:
    """Importance sampling with this kind of truncation."""
    return ClippedPGLossConfig(
        reference_policy_kl_penalty=0.0,
        use_importance_sampling_correction=True,
        truncated_importance_sampling_type=kind,  # type: ignore[arg-type]
        truncated_importance_sampling_ratio=high,
        truncated_importance_sampling_ratio_min=low,
    )


def penalty(**changes: Any) -> ClippedPGLossConfig:
    """A KL penalty of 0.1 with these options."""
    return ClippedPGLossConfig(reference_policy_kl_penalty=0.1, **changes)


OPTIONS = {
    "plain": PLAIN,
    "no clip": replace(PLAIN, ratio_clip_min=0.999, ratio_clip_max=1e9),
    "clip higher": replace(PLAIN, ratio_clip_max=0.5),
    "dual clip": replace(PLAIN, ratio_clip_c=1.3),
    "importance sampling": replace(PLAIN, use_importance_sampling_correction=True),
    "tis": truncated("tis", None, 1.5),
    "tis with both bounds": truncated("tis", 0.8, 1.2),
    "icepop": truncated("icepop", 0.7, 1.4),
    "seq-mask-tis": truncated("seq-mask-tis", 0.9, 1.1),
    "kl": penalty(reference_policy_kl_gradient="direct"),
    "k1": penalty(reference_policy_kl_gradient="direct", reference_policy_kl_type="k1"),
    "k2": penalty(reference_policy_kl_gradient="direct", reference_policy_kl_type="k2"),
    "kl in bounds": penalty(
        reference_policy_kl_gradient="direct",
        reference_policy_kl_type="k1",
        kl_input_clamp_value=0.4,
        kl_output_clamp_value=0.3,
    ),
    "unbiased kl": penalty(),
    "on-policy kl": penalty(use_on_policy_kl_approximation=True),
    "kl in reward": penalty(use_kl_in_reward=True),
    "gspo": replace(PLAIN, **GSPO),
    "gspo corrected": replace(PLAIN, **GSPO, **CORRECTED),
    "cispo": replace(PLAIN, use_cispo=True),
    "reinforce": replace(PLAIN, disable_ppo_ratio=True),
    "on-policy ratio": replace(PLAIN, force_on_policy_ratio=True),
    "all terms": ALL_TERMS,
    "all terms by sequence": replace(ALL_TERMS, token_level_loss=False),
}
every_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS.keys())
