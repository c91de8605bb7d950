"""The configuration tree: valid values, error messages, derived values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlconform._resources import resource_dir
from rlconform.contract import ConfigError
from rlconform.grpo.config import (
    MasterConfig,
    PackingConfig,
    load_config,
    parse_config,
    reference_config_names,
)
from rlconform.plane.sharding import DynamicBatching, SequencePacking


def tree() -> dict[str, Any]:
    """A minimal configuration."""
    return {
        "policy": {
            "model_name": "tiny-llama",
            "max_total_sequence_length": 16,
            "optimizer": {"lr": 1e-3},
        },
        "grpo": {
            "num_prompts_per_step": 4,
            "num_generations_per_prompt": 8,
            "max_num_steps": 2,
            "seed": 0,
        },
        "data": {"task": "copy"},
        "generation": {"max_new_tokens": 4},
        "data_plane": {"enabled": False, "impl": "memory"},
    }


def changed(**sections: dict[str, Any]) -> dict[str, Any]:
    whole = tree()
    for name, values in sections.items():
        whole[name] = {**whole.get(name, {}), **values}
    return whole


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


@pytest.mark.parametrize("name", reference_config_names())
def test_reference_configurations_are_accepted(name: str) -> None:
    config = load_config(name)
    assert config.grpo.rows_per_step % config.train_global_batch_size == 0


def test_the_reference_configurations_are_these() -> None:
    assert {"tiny_llama_copy", "tiny_moe_copy", "llama-8b", "qwen3-30b"} <= set(
        reference_config_names()
    )


def test_overrides_come_last_and_have_the_types_of_yaml() -> None:
    config = load_config(
        "tiny_llama_copy",
        [
            "policy.optimizer.lr=1e-4",
            "policy.packing.mode=dynamic_batching",
            "policy.max_grad_norm=null",
            "policy.optimizer.betas=[0.5, 0.9]",
            "grpo.use_dynamic_sampling=true",
            "data_plane.enabled=false",
        ],
    )
    assert config.policy.optimizer.lr == 1e-4
    assert config.policy.packing.mode == "dynamic_batching"
    assert config.policy.max_grad_norm is None
    assert config.policy.optimizer.betas == (0.5, 0.9)
    assert config.grpo.use_dynamic_sampling
    assert not config.data_plane.enabled


@pytest.mark.parametrize("name", reference_config_names("data_plane"))
def test_a_plane_is_taken_by_its_name(name: str) -> None:
    config = load_config(
        "tiny_llama_copy", [f"data_plane={name}", "data_plane.storage_capacity=77"]
    )
    engine = "_".join(filter(None, (config.data_plane.impl, config.data_plane.backend)))
    assert (engine, config.data_plane.storage_capacity) == (name, 77)


def test_a_plane_is_taken_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("data_plane: {enabled: true, impl: memory}\n")
    config = load_config("tiny_llama_copy", [f"data_plane={tmp_path / 'mine.yaml'}"])
    assert config.data_plane.model_dump(exclude_none=True) == {"enabled": True, "impl": "memory"}


def test_a_plane_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ray_store"):
        load_config("tiny_llama_copy", ["data_plane=redis"])
    (tmp_path / "other.yaml").write_text("plane: {}\n")
    with pytest.raises(ConfigError, match="no data_plane section"):
        load_config("tiny_llama_copy", [f"data_plane={tmp_path / 'other.yaml'}"])


def test_a_file_changes_the_values_of_the_one_it_names(tmp_path: Path) -> None:
    OmegaConf.save(OmegaConf.create(tree()), tmp_path / "base.yaml")
    (tmp_path / "own.yaml").write_text("defaults: base.yaml\ngrpo: {seed: 7}\n")
    config = load_config(tmp_path / "own.yaml")
    assert (config.grpo.seed, config.grpo.max_num_steps) == (7, 2)


def test_files_that_name_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("defaults: b.yaml\n")
    (tmp_path / "b.yaml").write_text("defaults: a.yaml\n")
    with pytest.raises(ConfigError, match="form a cycle"):
        load_config(tmp_path / "a.yaml")


def test_interpolations_are_resolved() -> None:
    whole = OmegaConf.create(changed(policy={"train_global_batch_size": "${rows}"}))
    whole.rows = 16
    with pytest.raises(ConfigError, match="there is no key rows"):
        parse_config(whole)
    whole = OmegaConf.create(changed(policy={"train_micro_batch_size": "${grpo.max_num_steps}"}))
    assert parse_config(whole).policy.train_micro_batch_size == 2


def test_an_interpolation_of_nothing_names_its_key() -> None:
    whole = OmegaConf.create(changed(policy={"train_micro_batch_size": "${grpo.nothing}"}))
    with pytest.raises(ConfigError, match=r"policy\.train_micro_batch_size"):
        parse_config(whole)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"grpo": {"num_step": 3}}, "there is no key grpo.num_step; did you mean 'max_num_steps'?"),
        ({"polcy": {}}, "there is no key polcy; did you mean 'policy'?"),
        (
            {"policy": {"packing": {"mde": 1}}},
            "there is no key policy.packing.mde; did you mean 'mode'?",
        ),
        ({"policy": {"zzz": 1}}, "there is no key policy.zzz"),
        ({"policy": {"optimizer": {}}}, "policy.optimizer.lr is missing"),
        ({"policy": {"precision": "fp8"}}, "policy.precision is 'fp8'"),
        ({"policy": {"optimizer": {"lr": "1e-3"}}}, "policy.optimizer.lr is '1e-3'"),
        ({"policy": {"optimizer": {"lr": float("nan")}}}, "policy.optimizer.lr is nan"),
        ({"policy": {"train_micro_batch_size": True}}, "policy.train_micro_batch_size is True"),
        ({"policy": {"packing": {"mode": "sequence_packing"}}}, "train_mb_tokens"),
        (
            {
                "policy": {
                    "packing": {
                        "mode": "dynamic_batching",
                        "train_mb_tokens": 15,
                        "logprob_mb_tokens": 64,
                    }
                }
            },
            "packing.train_mb_tokens is 15, too little for a row of 16 tokens",
        ),
        ({"policy": {"train_global_batch_size": 12}}, "a step has 32 rows"),
        ({"cluster": {"dp_size": 3}}, "split evenly over cluster.dp_size 3"),
        ({"generation": {"max_new_tokens": 16}}, "leaves no room for a prompt"),
        ({"generation": {"temperature": 0.0}}, "generation.temperature is 0.0"),
        ({"generation": {"backend": "sglang"}}, "generation.backend is 'sglang'"),
        ({"grpo": {"num_generations_per_prompt": 1}}, "at least 2"),
        ({"grpo": {"batch_multiplier": 2}}, "use_dynamic_sampling"),
        ({"grpo": {"reward_scaling": {"source_max": 0.0}}}, "below source_max"),
        ({"loss_fn": {"ratio_clip_c": 1.0}}, "loss_fn.ratio_clip_c is 1.0"),
        (
            {"loss_fn": {"truncated_importance_sampling_ratio": 2.0}},
            "truncated_importance_sampling_type",
        ),
        ({"loss_fn": {"use_kl_in_reward": True}}, "adv_estimator.name: reinforce_plus_plus"),
        (
            {
                "loss_fn": {"force_on_policy_ratio": True},
                "policy": {"train_global_batch_size": 16},
            },
            "train_global_batch_size to 32 or null",
        ),
        (
            {"grpo": {"skip_reference_policy_logprobs_calculation": True}},
            "reference_policy_kl_penalty: 0",
        ),
        ({"grpo": {"val_num_generations_per_prompt": 2}}, "val_greedy: false"),
        ({"grpo": {"stop_at_validation_metric": "accuracy"}}, "need each other"),
        (
            {
                "grpo": {
                    "stop_at_validation_metric": "pass_k",
                    "stop_at_validation_threshold": 0.5,
                }
            },
            "pass_k needs a val_num_generations_per_prompt above 1",
        ),
        (
            {
                "grpo": {
                    "val_period": 0,
                    "stop_at_validation_metric": "accuracy",
                    "stop_at_validation_threshold": 0.5,
                }
            },
            "needs validations",
        ),
        ({"grpo": {"advantage_clip_low": 1.0, "advantage_clip_high": 0.0}}, "advantage_clip_low"),
        ({"grpo": {"adv_estimator": {"name": "opd"}}}, "grpo.adv_estimator.name is 'opd'"),
        ({"data": {"task": "jsonl"}}, "task jsonl needs a path"),
        (
            {"data": {"task": "jsonl", "path": "p.jsonl"}, "grpo": {"val_period": 1}},
            "validation needs data.val_path",
        ),
        ({"data": {"min_length": 3}}, "min_length 3 is above max_length 1"),
        ({"data_plane": {"impl": "redis"}}, "impl is 'redis'"),
        ({"data_plane": {"impl": "ray_store"}}, "lacks name"),
    ],
)
def test_what_is_wrong_is_named_in_one_line(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(changed(**sections), "grpo.yaml")
    assert str(caught.value).startswith("grpo.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_section_is_named() -> None:
    whole = tree()
    del whole["data_plane"]
    with pytest.raises(ConfigError, match="data_plane is missing"):
        parse_config(whole)


@pytest.mark.parametrize("override", ["grpo.seed", "=3", "grpo.seed: 3"])
def test_an_override_is_key_and_value(override: str) -> None:
    with pytest.raises(ConfigError, match="not key=value"):
        load_config("tiny_llama_copy", [override])


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="tiny_llama_copy"):
        load_config("tiny_lama_copy")


@pytest.mark.parametrize(
    ("text", "message"),
    [("policy: [", "not valid YAML"), ("- 1\n- 2\n", "not a mapping"), (None, "No such file")],
)
def test_a_file_that_cannot_be_used_says_why(
    tmp_path: Path, text: str | None, message: str
) -> None:
    path = tmp_path / "grpo.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_config(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


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


def test_the_mixture_of_experts_differs_in_its_model_alone() -> None:
    dense, experts = (load_config(name).policy for name in ("tiny_llama_copy", "tiny_moe_copy"))
    assert experts.model_name == "tiny-qwen3-moe"
    assert experts.model_copy(update={"model_name": dense.model_name}) == dense


def test_the_folder_of_reference_configurations_ships() -> None:
    assert (resource_dir("reference_configs") / "grpo").is_dir()
