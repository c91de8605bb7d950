"""The loss refuses columns and counts that do not fit, and options that are out of range."""

from __future__ import annotations

import math
from typing import Any

import pytest

from rlconform.grpo.config import ClippedPGLossConfig

from .batches import a_batch, counts, loss_of
from .options import ALL_TERMS, CORRECTED, OPTIONS, PLAIN


@pytest.mark.parametrize("name", ["old_logprobs", "reference_logprobs", "advantages", "logprobs"])
def test_a_column_of_another_shape_is_refused(name: str) -> None:
    batch = a_batch()
    batch[name] = batch[name][:, :1]
    with pytest.raises(ValueError, match=f"{name} must be"):
        loss_of(batch, PLAIN)


def test_terms_without_their_column_are_refused() -> None:
    batch: dict[str, Any] = a_batch()
    with pytest.raises(ValueError, match="reference_logprobs"):
        loss_of(batch | {"reference_logprobs": None}, ALL_TERMS)
    with pytest.raises(ValueError, match="engine_logprobs"):
        loss_of(batch | {"engine_logprobs": None}, ALL_TERMS)
    with pytest.raises(ValueError, match="engine_logprobs"):
        loss_of(batch | {"engine_logprobs": None}, OPTIONS["on-policy kl"])


def test_counts_of_a_part_in_place_of_the_batchs_are_refused() -> None:
    batch = a_batch()
    tokens, samples = counts(batch).values()
    with pytest.raises(ValueError, match="whole batch"):
        loss_of(batch, PLAIN, valid_tokens=tokens - 1, valid_samples=samples)
    with pytest.raises(ValueError, match="whole batch"):
        loss_of(batch, PLAIN, valid_tokens=tokens, valid_samples=samples - 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"ratio_clip_min": -0.1},
        {"ratio_clip_min": 1.1},
        {"ratio_clip_max": -0.1},
        {"ratio_clip_max": math.nan},
        {"ratio_clip_c": 1.0},
        {"reference_policy_kl_penalty": -1.0},
        {"reference_policy_kl_penalty": math.nan},
        {"truncated_importance_sampling_ratio": 2.0},
        {
            "truncated_importance_sampling_ratio": 2.0,
            "truncated_importance_sampling_type": "tis",
        },
        {"truncated_importance_sampling_type": "rounded"},
        {"truncated_importance_sampling_ratio_min": 0.5},
        {
            "truncated_importance_sampling_ratio_min": None,
            **CORRECTED,
            "truncated_importance_sampling_type": "icepop",
        },
        {"truncated_importance_sampling_ratio_min": 1.6, **CORRECTED},
        {"disable_ppo_ratio": True, "force_on_policy_ratio": True},
        {"sequence_level_importance_ratios": True},
        {"use_cispo": True, "ratio_clip_c": 3.0},
        {"use_cispo": True, "token_level_loss": False},
        {"reference_policy_kl_type": "k4"},
        {"kl_input_clamp_value": 0.0},
        {
            "truncated_importance_sampling_ratio": 0.0,
            "use_importance_sampling_correction": True,
        },
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ClippedPGLossConfig(**wrong)
