"""A configuration has the defaults of NeMo-RL, cannot be changed, and packs as it says."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from rlconform.grpo.config import MasterConfig, PackingConfig, parse_config
from rlconform.plane.sharding import DynamicBatching, SequencePacking

from .minimal_config import changed, tree


def test_sections_that_are_left_out_switch_their_features_off() -> None:
    config = parse_config(tree())
    assert not config.grpo.use_dynamic_sampling
    assert config.grpo.adv_estimator.name == "grpo"
    assert not config.loss_fn.use_importance_sampling_correction
    assert config.policy.packing.mode == "none"
    assert config.train_global_batch_size == config.grpo.rows_per_step == 32


#: Defaults of NeMo-RL at 7ea279abf.
OF_NEMO_RL = {
    "grpo": {
        "max_num_epochs": 1,
        "normalize_rewards": True,
        "use_leave_one_out_baseline": True,
        "advantage_clip_low": None,
        "advantage_clip_high": None,
        "batch_multiplier": 1.0,
        "val_period": 10,
        "val_start_at": -1,
        "val_at_start": False,
        "val_at_end": False,
        "val_batch_size": 256,
        "max_val_samples": 256,
        "val_num_generations_per_prompt": 1,
        "stop_at_validation_metric": None,
        "stop_at_validation_threshold": None,
        "skip_reference_policy_logprobs_calculation": False,
    },
    "loss_fn": {
        "disable_ppo_ratio": False,
        "token_level_loss": True,
        "sequence_level_importance_ratios": False,
        "ratio_clip_min": 0.2,
        "ratio_clip_max": 0.2,
        "ratio_clip_c": None,
        "reference_policy_kl_penalty": 0.01,
        "reference_policy_kl_type": "k3",
        "kl_input_clamp_value": 20.0,
        "kl_output_clamp_value": 10.0,
        "use_kl_in_reward": False,
        "use_importance_sampling_correction": False,
        "truncated_importance_sampling_type": None,
        "truncated_importance_sampling_ratio": None,
        "truncated_importance_sampling_ratio_min": None,
        "use_on_policy_kl_approximation": False,
        "force_on_policy_ratio": False,
        "use_cispo": False,
    },
}


@pytest.mark.parametrize("section", OF_NEMO_RL)
def test_defaults_are_those_of_nemo_rl(section: str) -> None:
    got = getattr(parse_config(tree()), section).model_dump()
    assert {name: got[name] for name in OF_NEMO_RL[section]} == OF_NEMO_RL[section]


def test_interpolated_options_of_the_estimator_are_those_of_nemo_rl() -> None:
    own = {
        "name": "grpo",
        "normalize_rewards": "${grpo.normalize_rewards}",
        "use_leave_one_out_baseline": "${grpo.use_leave_one_out_baseline}",
        "minus_baseline": True,
    }
    grpo = {"normalize_rewards": False, "use_leave_one_out_baseline": False, "adv_estimator": own}
    config = parse_config(OmegaConf.create(changed(grpo=grpo))).grpo
    assert not config.normalizes_rewards
    assert not config.leaves_one_out


def test_a_configuration_is_frozen() -> None:
    config = parse_config(tree())
    with pytest.raises(ValueError, match="frozen"):
        config.policy.model_name = "other"  # type: ignore[misc]


def test_a_configuration_survives_being_dumped_and_read_again() -> None:
    plane = {"enabled": True, "impl": "ray_store", "name": "train"}
    config = parse_config(changed(data_plane=plane))
    assert config.data_plane.model_dump(exclude_none=True) == plane
    assert MasterConfig.model_validate(config.model_dump(exclude_none=True)) == config


def test_packing_gives_each_stage_its_own_limit() -> None:
    packing = PackingConfig(
        mode="sequence_packing",
        train_mb_tokens=64,
        logprob_mb_tokens=128,
        sequence_length_round=4,
    )
    assert packing.sequence_packing("train") == SequencePacking(64, sequence_length_pad_multiple=4)
    assert packing.sequence_packing("logprob") == SequencePacking(
        128, sequence_length_pad_multiple=4
    )
    assert packing.dynamic_batching("train") is None


def test_dynamic_batching_is_the_other_mode() -> None:
    packing = PackingConfig(
        mode="dynamic_batching", train_mb_tokens=64, logprob_mb_tokens=128, sequence_length_round=4
    )
    assert packing.dynamic_batching("logprob") == DynamicBatching(128, 4)
    assert packing.sequence_packing("logprob") is None


def test_no_packing_packs_nothing() -> None:
    assert PackingConfig().sequence_packing("train") is None
    assert PackingConfig().dynamic_batching("train") is None
