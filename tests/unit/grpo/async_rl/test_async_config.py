"""The section ``async_rl:``: defaults, refused keys, sizes that could not go on."""

from __future__ import annotations

import pytest

from rlconform.contract import ConfigError
from rlconform.grpo.config import load_config
from rlconform.grpo.config.async_rl import QueueConfig

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


QUEUE = "async_rl.transport=queue"


@pytest.mark.parametrize(
    ("threshold", "period", "quota", "bound"),
    [(0, 1, 8, 0), (0.5, 1, 12, 1), (1, 1, 16, 1), (2, 1, 24, 2), (0, 4, 32, 3), (0.1, 10, 88, 10)],
)
def test_quota_and_bound_of_the_queue(
    threshold: float, period: int, quota: int, bound: int
) -> None:
    queue = QueueConfig(staleness_threshold=threshold, trigger_parameter_sync_step=period)
    assert (queue.quota(8), queue.bound(8)) == (quota, bound)


def test_the_queue_needs_no_further_option() -> None:
    config = load_config(ASYNC, [QUEUE]).async_rl
    assert config is not None
    assert (config.slots(8), config.max_staleness(8), config.arrangement) == (16, 1, "queue")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["async_rl.queue.capacity=4"], "queue is a section of transport: queue"),
        ([QUEUE, "async_rl.sampler.name=windowed"], "transport: queue has no sampler"),
        ([QUEUE, "async_rl.sampler.max_lookahead_versions=2"], "queue.staleness_threshold"),
        ([QUEUE, "async_rl.queue.staleness_threshold=2"], "quota needs 24"),
        ([QUEUE, "async_rl.queue.capacity=4"], "a step takes 8 groups at once"),
        ([QUEUE, "async_rl.queue.on_ful=wait"], "on_full"),
        ([QUEUE, "async_rl.staleness_threshold=1"], "queue.staleness_threshold"),
        ([QUEUE, "async_rl.queue.trigger_parameter_sync_step=2",
          "async_rl.max_buffered_rollouts=32", "grpo.val_period=3"], "grpo.val_period is 3"),
        ([QUEUE, "async_rl.queue.trigger_parameter_sync_step=2",
          "async_rl.max_buffered_rollouts=32", "checkpointing.enabled=true",
          "checkpointing.save_period=5"], "checkpointing.save_period is 5"),
    ],
)  # fmt: skip
def test_a_queue_that_could_not_go_on_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(ASYNC, overrides)
