"""A wrong, unknown or missing value is an error of one line that names its key."""

from __future__ import annotations

from typing import Any

import pytest
from omegaconf import OmegaConf

from rlconform.contract import ConfigError
from rlconform.grpo.config import load_config, parse_config

from .minimal_config import changed, tree


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
        (
            {"reward_model": {"sleep_while_generating": True, "enable_resource_pool": True}},
            "needs enable_resource_pool: false",
        ),
    ],
)
def test_what_is_wrong_is_named_in_one_line(sections: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(changed(**sections), "grpo.yaml")
    assert str(caught.value).startswith("grpo.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_reward_model_sleeps_in_synchronous_runs_only() -> None:
    sleeping = ["reward_model.enable=true", "reward_model.sleep_while_generating=true"]
    assert load_config("tiny_llama_copy", sleeping).reward_model.has_workers
    with pytest.raises(ConfigError, match="sleep_while_generating needs a synchronous run"):
        load_config("tiny_llama_copy_async", sleeping)


def test_a_missing_section_is_named() -> None:
    whole = tree()
    del whole["data_plane"]
    with pytest.raises(ConfigError, match="data_plane is missing"):
        parse_config(whole)


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
