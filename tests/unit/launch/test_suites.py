"""All recipes and lists agree with each other, and wrong ones are found."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlconform.launch.names import RecipeName, parse_name
from rlconform.launch.recipes import all_recipes, families, load_recipe, recipe_tree
from rlconform.launch.suites import (
    Suite,
    SuiteConfig,
    budget_problems,
    list_problems,
    load_suites,
    name_problems,
    size_problems,
)

RECIPES = all_recipes()
FULL = [str(name) for name in RECIPES if not name.tiny]


@cache
def values(name: RecipeName) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(recipe_tree(name), resolve=True)
    return plain


def gpu_hours(name: str) -> float:
    tree = values(parse_name(name))
    job, steps = tree["job"], tree["grpo"]["max_num_steps"]
    runs = -(-steps // job["steps_per_run"])
    return float(runs * job["minutes_per_run"] / 60 * job["nodes"] * job["gpus_per_node"])


@pytest.mark.parametrize("name", RECIPES, ids=str)
def test_a_name_agrees_with_the_values(name: RecipeName) -> None:
    assert name_problems(name, values(name)) == []


@pytest.mark.parametrize("name", RECIPES, ids=str)
def test_sizes_multiply_out(name: RecipeName) -> None:
    assert size_problems(name, values(name)) == []


@pytest.mark.parametrize("name", RECIPES, ids=str)
def test_every_recipe_validates(name: RecipeName) -> None:
    recipe = load_recipe(str(name))
    assert recipe.config.grpo.max_num_steps == recipe.steps
    assert recipe.job.nodes == name.nodes


def test_every_family_is_the_name_that_its_file_has() -> None:
    assert families() == sorted(parse_name(family).family for family in families())
    assert len(families()) >= 11


def test_lists_and_recipes_agree() -> None:
    assert [suite.name for suite in load_suites()] == ["l1", "nightly", "release"]
    assert list_problems(load_suites(), FULL) == []


def test_lists_are_within_their_budgets() -> None:
    assert budget_problems(load_suites(), gpu_hours) == []


def test_l1_has_recipes_of_one_node() -> None:
    (l1,) = (suite for suite in load_suites() if suite.name == "l1")
    assert {parse_name(name).nodes for name in l1.config.recipes} == {1}


def suite(name: str, budget: float, *recipes: str) -> Suite:
    return Suite(name, SuiteConfig(budget_gpu_hours=budget, recipes=list(recipes)))


def test_wrong_lists_are_found() -> None:
    suites = [suite("a", 10, "x", "gone"), suite("b", 10, "x")]
    assert list_problems(suites, ["x", "forgotten"]) == [
        "gone: listed, and no recipe",
        "forgotten: in no list",
        "x: listed 2 times",
    ]


def test_a_budget_is_a_limit() -> None:
    suites = [suite("a", 10, "x", "y")]
    assert budget_problems(suites, lambda _: 5) == []
    assert budget_problems(suites, lambda _: 6) == ["a: 12 GPU hours, above its budget of 10"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("job.nodes", 4, "nodes 2, its values 4"),
        ("policy.parallelism", "ddp", "parallelism 'fsdp2', its values 'ddp'"),
        ("cluster.train_pool", "own", "noncolocated False, its values True"),
        ("data_plane.enabled", False, "plane 'ray_store', its values None"),
        ("policy.megatron_cfg", {"enabled": True}, "megatron False, its values True"),
        ("policy.router_replay", {"enabled": True}, "r3 False, its values True"),
    ],
)
def test_a_name_that_says_something_else_is_found(key: str, value: object, said: str) -> None:
    name = parse_name("grpo-llama3.1-8b-instruct-2n8g-fsdp2-ray_store")
    tree = recipe_tree(name)
    OmegaConf.update(tree, key, value)
    plain: Any = OmegaConf.to_container(tree)
    assert name_problems(name, plain) == [f"{name}: its name says {said}"]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cluster.dp_size", 12, "12 GPUs for ranks, and the job has 16"),
        ("cluster.rollout_workers", 2, "2 GPUs for engines, and the job has 16"),
        ("cluster.rollout_nnodes", 3, "16 on cluster.rollout_nnodes 3"),
        (
            "policy.megatron_cfg",
            {"enabled": True, "expert_model_parallel_size": 3},
            "16 ranks can't be split into 3 parts of experts",
        ),
    ],
)
def test_sizes_that_do_not_multiply_out_are_found(key: str, value: object, said: str) -> None:
    name = parse_name("grpo-llama3.1-8b-instruct-2n8g-fsdp2")
    tree = recipe_tree(name)
    OmegaConf.update(tree, key, value)
    plain: Any = OmegaConf.to_container(tree)
    assert size_problems(name, plain) == [f"{name}: {said}"]
