"""Names of recipes are read part by part."""

from __future__ import annotations

import pytest

from rlconform.contract import ConfigError
from rlconform.launch.names import RecipeName, parse_name
from rlconform.launch.recipes import load_recipe


def test_a_name_has_parts() -> None:
    text = "grpo-qwen3-30ba3b-2n8g-megatron-tp2-cp4-seqpack-async-8off-tq_simple-tiny"
    name = parse_name(text)
    assert name == RecipeName(
        model="qwen3-30ba3b",
        nodes=2,
        gpus_per_node=8,
        strategy="megatron",
        sizes=(("tp", 2), ("cp", 4)),
        flags=("seqpack",),
        steps_off=8,
        plane="tq_simple",
        tiny=True,
    )
    assert str(name) == text
    assert name.family == "grpo-qwen3-30ba3b-2n8g-megatron-tp2-cp4-seqpack-async-8off"
    assert str(name.legacy) == f"{name.family}-tiny"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ppo-qwen3-30ba3b-2n8g-fsdp2", "expected grpo-MODEL-"),
        ("grpo-gpt2-2n8g-fsdp2", "MODEL one of llama3.1-8b-instruct"),
        ("grpo-qwen3-30ba3b-2n8g-fsdp2-tq_simpel", "did you mean 'tq_simple'"),
        ("grpo-qwen3-30ba3b-2n8g-fsdp2-async", "'async' is no modifier"),
        ("grpo-qwen3-30ba3b-2n8g-fsdp2-tiny-ray_store", "in the order of"),
        ("grpo-qwen3-30ba3b-2n8g-fsdp2-seqpack-tp2", "in the order of"),
        ("grpo-qwen3-30ba3b-2n8g-fsdp2-ray_store-tq_simple", "in the order of"),
    ],
)
def test_a_name_that_cannot_be_read_says_which_part(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_name(text)


def test_a_recipe_without_a_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no file grpo-llama3.1-8b-instruct-2n8g-fsdp2-seqpack"):
        load_recipe("grpo-llama3.1-8b-instruct-2n8g-fsdp2-seqpack")


def test_an_asynchronous_recipe_needs_a_plane() -> None:
    with pytest.raises(ConfigError, match="append one of -ray_store"):
        load_recipe("grpo-llama3.1-8b-instruct-2n8g-fsdp2-async-1off")


def test_steps_and_overrides_come_last() -> None:
    recipe = load_recipe(
        "grpo-llama3.1-8b-instruct-2n8g-fsdp2-tiny", ["grpo.seed=9", "job.minutes_per_run=3"], 81
    )
    assert (recipe.steps, recipe.config.grpo.seed, recipe.job.minutes_per_run) == (81, 9, 3)
    assert recipe.job.runs(recipe.steps) == 3


def test_gpu_hours_are_those_of_all_runs() -> None:
    recipe = load_recipe("grpo-llama3.1-8b-instruct-2n8g-fsdp2", [
        "job.minutes_per_run=90", "job.steps_per_run=20"
    ], 41)  # fmt: skip
    assert recipe.gpu_hours == 3 * 1.5 * 16


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("job.minute=3", "job.minute: Extra inputs"),
        ("gates.metrics=[mean(train/loss)]", "gates.metrics.*|expected a comparison"),
        ("grpo.max_num_stepz=3", "there is no key grpo.max_num_stepz"),
    ],
)
def test_a_wrong_key_is_named(override: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_recipe("grpo-llama3.1-8b-instruct-2n8g-fsdp2-tiny", [override])


@pytest.mark.parametrize("plane", ["ray_store", "tq_simple", "tq_mooncake"])
def test_a_twin_keeps_the_structure(plane: str) -> None:
    name = f"grpo-llama3.1-8b-instruct-2n8g-fsdp2-async-8off-{plane}"
    full, twin = load_recipe(name), load_recipe(f"{name}-tiny")
    for one, other in ((full.config, twin.config),):
        assert one.policy.parallelism == other.policy.parallelism
        assert one.policy.packing.mode == other.policy.packing.mode
        assert one.async_rl is not None
        assert other.async_rl is not None
        assert one.async_rl.sampler == other.async_rl.sampler
        assert one.loss_fn == other.loss_fn
        assert one.cluster.train_pool == other.cluster.train_pool == "own"
        assert one.data_plane.impl == other.data_plane.impl
        assert one.data_plane.backend == other.data_plane.backend
    assert full.job.nodes == twin.job.nodes == 2
