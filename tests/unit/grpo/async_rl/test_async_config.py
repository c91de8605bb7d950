"""The section ``async_rl:``: defaults, refused keys, sizes that could not go on."""

from __future__ import annotations

import pytest

from rlconform.contract import ConfigError
from rlconform.grpo.config import load_config

ASYNC = "tiny_llama_copy_async"


def test_names_and_defaults_are_those_of_nemo_rl() -> None:
    config = load_config("tiny_llama_copy", ["async_rl.max_buffered_rollouts=64"]).async_rl
    assert config is not None
    assert config.sampler.name == "in_order"
    assert (config.min_groups_for_streaming_train, config.max_inflight_prompts) == (32, 32)
    assert config.max_buffered_rollouts == 64
    assert config.rollout_failure.max_infra_attempts_per_prompt == 5
    assert config.rollout_failure.max_data_attempts_per_prompt == 2
    assert config.rollout_failure.min_step_batch_fraction == 0.9
    assert (config.stall_watchdog.interval, config.stall_watchdog.stall_timeout) == (30, 600)


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("async_rl.max_trajectory_age_steps=1", "sampler.max_staleness_versions"),
        ("async_rl.partial_rollout=true", "partial_rollouts"),
        ("async_rl.max_inflight=3", "max_inflight_prompts"),
        ("async_rl.sampler.max_staleness_versions=2", "max_lookahead_versions"),
        ("grpo.async_grpo.enabled=true", "async_rl"),
        ("async_rl.sampler.name=fifo", "weight_fifo"),
    ],
)
def test_unknown_and_renamed_keys_are_refused_by_name(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(ASYNC, [override])


@pytest.mark.parametrize("sampler", ["in_order", "ready_first", "weight_fifo"])
def test_a_buffer_too_small_for_the_sampler_is_refused_at_the_start(sampler: str) -> None:
    key = "max_lookahead_versions" if sampler == "in_order" else "max_staleness_versions"
    block = f"async_rl.sampler={{name: {sampler}, {key}: 2}}"
    load_config(ASYNC, [block, "async_rl.max_buffered_rollouts=24"])
    with pytest.raises(ConfigError, match="at least 24"):
        load_config(ASYNC, [block, "async_rl.max_buffered_rollouts=23"])


def test_windowed_needs_a_whole_step() -> None:
    block = "async_rl.sampler={name: windowed, max_staleness_versions: 2}"
    load_config(ASYNC, [block, "async_rl.max_buffered_rollouts=8"])
    with pytest.raises(ConfigError, match="at least 8"):
        load_config(ASYNC, [block, "async_rl.max_buffered_rollouts=7"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policy.train_global_batch_size=32", "one optimizer step"),
        ("data_plane.enabled=false", "needs a data plane"),
        ("async_rl.in_flight_weight_updates=true", "partial_rollouts"),
    ],
)
def test_what_does_not_go_together_is_refused(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(ASYNC, ["async_rl.partial_rollouts=true", override])


def test_an_estimator_over_the_whole_batch_refuses_chunks() -> None:
    whole = "grpo.adv_estimator={name: reinforce_plus_plus}"
    load_config(ASYNC, [whole])
    with pytest.raises(ConfigError, match="min_groups_for_streaming_train is 4"):
        load_config(ASYNC, [whole, "async_rl.min_groups_for_streaming_train=4"])
