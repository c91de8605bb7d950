"""Configurations are read from files and reference configurations, and overrides change them."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from rlconform._resources import resource_dir
from rlconform.contract import ConfigError
from rlconform.grpo.config import load_config, reference_config_names

from .minimal_config import tree


@pytest.mark.parametrize("name", reference_config_names())
def test_reference_configurations_are_accepted(name: str) -> None:
    config = load_config(name)
    assert config.grpo.rows_per_step % config.train_global_batch_size == 0


def test_the_reference_configurations_are_these() -> None:
    assert {"tiny_llama_copy", "tiny_moe_copy", "llama-8b", "qwen3-30b"} <= set(
        reference_config_names()
    )


def test_the_folder_of_reference_configurations_ships() -> None:
    assert (resource_dir("reference_configs") / "grpo").is_dir()


def test_the_mixture_of_experts_differs_in_its_model_alone() -> None:
    dense, experts = (load_config(name).policy for name in ("tiny_llama_copy", "tiny_moe_copy"))
    assert experts.model_name == "tiny-qwen3-moe"
    assert experts.model_copy(update={"model_name": dense.model_name}) == dense


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="tiny_llama_copy"):
        load_config("tiny_lama_copy")


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


@pytest.mark.parametrize("override", ["grpo.seed", "=3", "grpo.seed: 3"])
def test_an_override_is_key_and_value(override: str) -> None:
    with pytest.raises(ConfigError, match="not key=value"):
        load_config("tiny_llama_copy", [override])


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
