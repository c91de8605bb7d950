"""What a recipe's rows take in its plane; ``tests/e2e/test_plane_size.py`` measures it."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from rlconform.cli import app
from rlconform.cli.size import bytes_text
from rlconform.contract import ConfigError
from rlconform.launch.recipes import all_recipes, load_recipe
from rlconform.launch.sizing import Need, needs, plane_size, rows_in_flight

LLAMA = "grpo-llama3.1-8b-instruct-2n8g-fsdp2"
QWEN = "grpo-qwen3-30ba3b-2n8g-megatron-tp2"


def of(recipe: str, *overrides: str, tokens: float | None = None) -> Any:
    return plane_size(load_recipe(recipe, overrides).config, tokens)


def test_a_row_has_the_columns_of_its_run() -> None:
    size = of(f"{LLAMA}-ray_store", "loss_fn.reference_policy_kl_penalty=0", tokens=1000)
    assert sum(size.token_bytes.values()) == 8 + 4 + 4 + 4 + 4
    assert size.bytes_per_row == pytest.approx(24 * 1000 + 4 * 1000, rel=0.02)
    with_reference = of(f"{LLAMA}-ray_store", "loss_fn.reference_policy_kl_penalty=0.1")
    assert with_reference.token_bytes["reference_policy_logprobs"] == 4
    assert of(f"{LLAMA}-async-1off-ray_store").token_bytes["token_versions"] == 8


def test_routes_take_a_byte_per_layer_and_expert() -> None:
    assert of(f"{QWEN}-r3-ray_store").token_bytes["routed_experts"] == 48 * 8
    assert of(f"{QWEN}-r3-ray_store-tiny").token_bytes["routed_experts"] == 2 * 2
    with pytest.raises(ConfigError, match="the routers of /models/Other are not known"):
        of(f"{QWEN}-r3-ray_store", "policy.model_name=/models/Other")


def test_rows_in_flight() -> None:
    step = load_recipe(f"{LLAMA}-ray_store")
    assert rows_in_flight(step.config) == step.config.grpo.rows_per_step
    ahead = load_recipe(f"{LLAMA}-async-8off-ray_store").config
    assert rows_in_flight(ahead) >= 9 * ahead.grpo.rows_per_step
    dynamic = load_recipe(f"{LLAMA}-ray_store", ["grpo.use_dynamic_sampling=true"]).config
    assert rows_in_flight(dynamic) == 2 * dynamic.grpo.rows_per_step - 1


@pytest.mark.parametrize("tokens", [0, -1, 1e9])
def test_rows_have_a_length_that_the_recipe_allows(tokens: float) -> None:
    with pytest.raises(ConfigError, match="expected rows of 1 to"):
        of(f"{LLAMA}-ray_store", tokens=tokens)


def test_every_recipe_gives_its_plane_enough() -> None:
    names = [name for name in all_recipes() if name.plane and not name.tiny]
    # Those with context parallelism can't be loaded: the Megatron workers refuse it.
    recipes = [load_recipe(str(name)) for name in names if "cp" not in dict(name.sizes)]
    found = {
        f"{recipe.name}: {need.key}"
        for recipe in recipes
        for need in needs(recipe.config, plane_size(recipe.config), recipe.job.object_store_bytes)
        if not need.suffices
    }
    assert len(recipes) >= 30
    assert found == set()


def test_the_command_says_what_is_too_small() -> None:
    recipe = f"{LLAMA}-ray_store"
    good = CliRunner().invoke(app, ["size", recipe])
    assert good.exit_code == 0, good.output
    assert "in the plane at once" in good.output
    assert "ports of Ray: 200 per job" in good.output
    short = CliRunner().invoke(app, ["size", recipe, "data_plane.storage_capacity=10"])
    assert short.exit_code == 1
    assert "too small: data_plane.storage_capacity" in short.output
    store = CliRunner().invoke(app, ["size", recipe, "job.object_store_bytes=1000"])
    assert "too small: job.object_store_bytes" in store.output
    assert CliRunner().invoke(app, ["size", LLAMA]).exit_code == 2, "the legacy trainer: no plane"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (3 * 2**30, "3 GiB"), (2**41, "2 TiB")]
)
def test_bytes_have_units(count: float, text: str) -> None:
    assert bytes_text(count) == text


def test_what_is_left_open_suffices() -> None:
    assert Need("bytes", 5, None, "key").suffices
    assert not Need("bytes", 5, 4, "key").suffices
