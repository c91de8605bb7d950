"""The ``data_plane`` block: accepted values, error messages, and the factory's clients."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rlconform._resources import resource_dir
from rlconform.backends import (
    BUILTIN,
    DataPlaneConfig,
    build_data_plane_client,
    load_data_plane,
    parse_data_plane,
)
from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.contract import ConfigError, missing_methods

REFERENCE = resource_dir("reference_configs") / "data_plane"

MEMORY: dict[str, Any] = {"enabled": True, "impl": "memory"}
RAY_STORE: dict[str, Any] = {"enabled": True, "impl": "ray_store", "name": "train"}
TRANSFER_QUEUE: dict[str, Any] = {
    "enabled": True,
    "impl": "transfer_queue",
    "backend": "simple",
    "storage_capacity": 64,
    "num_storage_units": 2,
    "claim_meta_poll_interval_s": 0.1,
    "global_segment_size": 0,
    "local_buffer_size": 1024,
}


def write(folder: Path, text: str) -> Path:
    path = folder / "plane.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "block",
    [MEMORY, RAY_STORE, {**RAY_STORE, "ack_timeout_ms": 500}, TRANSFER_QUEUE],
    ids=lambda block: block["impl"],
)
def test_a_whole_block_is_taken_as_it_stands(block: dict[str, Any]) -> None:
    assert parse_data_plane(block).model_dump(exclude_none=True) == block


def test_a_block_within_a_whole_configuration_is_found() -> None:
    whole = {"grpo": {"num_steps": 3}, "data_plane": TRANSFER_QUEUE}
    assert parse_data_plane(whole) == parse_data_plane(TRANSFER_QUEUE)


def test_interpolations_reach_outside_the_block() -> None:
    cfg = OmegaConf.create({"rows": 8, "data_plane": {**MEMORY, "storage_capacity": "${rows}"}})
    assert parse_data_plane(cfg).storage_capacity == 8


def test_a_parsed_block_is_frozen() -> None:
    config = parse_data_plane(MEMORY)
    with pytest.raises(ValueError, match="frozen"):
        config.enabled = False


def test_an_integer_does_for_seconds() -> None:
    assert parse_data_plane({**TRANSFER_QUEUE, "claim_meta_poll_interval_s": 1}) is not None


@pytest.mark.parametrize("key", sorted(TRANSFER_QUEUE))
def test_no_key_of_transfer_queue_has_a_default(key: str) -> None:
    block = {name: value for name, value in TRANSFER_QUEUE.items() if name != key}
    with pytest.raises(ConfigError, match=f"lacks {key}$"):
        parse_data_plane(block)


def test_all_missing_keys_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match="lacks backend, storage_capacity, num_storage_units"):
        parse_data_plane({"enabled": True, "impl": "transfer_queue"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("enabled", "yes"),
        ("enabled", 1),
        ("impl", None),
        ("impl", ["memory"]),
        ("impl", "redis"),
        ("backend", "mooncake_gpu"),
        ("backend", "memory"),
        ("storage_capacity", 0),
        ("storage_capacity", 1e6),
        ("storage_capacity", "64"),
        ("storage_capacity", True),
        ("storage_capacity", None),
        ("num_storage_units", -1),
        ("claim_meta_poll_interval_s", 0),
        ("claim_meta_poll_interval_s", float("inf")),
        ("global_segment_size", -1),
        ("local_buffer_size", 0),
    ],
)
def test_a_wrong_value_is_named_with_its_key(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_data_plane({**TRANSFER_QUEUE, key: value}, source="grpo.yaml")
    message = str(caught.value)
    assert message.startswith(f"grpo.yaml: {key} is {value!r}")
    assert "\n" not in message


def test_memory_has_no_other_engine() -> None:
    with pytest.raises(ConfigError, match="backend is 'simple'"):
        parse_data_plane({**MEMORY, "backend": "simple"})


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("storage_capcity", "storage_capacity"), ("backened", "backend"), ("Enabled", "enabled")],
)
def test_a_misspelt_key_is_answered_with_the_right_one(wrong: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"'{wrong}'.*did you mean '{meant}'"):
        parse_data_plane({**TRANSFER_QUEUE, wrong: 1})


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_ray_store_has_a_name(name: object) -> None:
    with pytest.raises(ConfigError, match="name is"):
        parse_data_plane({**RAY_STORE, "name": name})
    with pytest.raises(ConfigError, match="lacks name"):
        parse_data_plane({"enabled": True, "impl": "ray_store"})
    with pytest.raises(ConfigError, match="'name' is no key"):
        parse_data_plane({**MEMORY, "name": "train"})


def test_a_misspelt_implementation_is_answered_with_the_right_one() -> None:
    with pytest.raises(ConfigError, match="did you mean 'transfer_queue'"):
        parse_data_plane({**TRANSFER_QUEUE, "impl": "transferqueue"})


def test_an_unknown_key_is_named_without_a_wild_guess() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_data_plane({**MEMORY, "xyz": 1})
    assert "'xyz'" in str(caught.value)
    assert "mean" not in str(caught.value)


@pytest.mark.parametrize(
    "cfg", [{}, {"grpo": {}}, {"data_plane": None}, {"data_plane": [1]}, [MEMORY], None, "memory"]
)
def test_without_a_block_there_is_nothing_to_read(cfg: Any) -> None:
    with pytest.raises(ConfigError, match=r"expected a data_plane block|not a mapping"):
        parse_data_plane(cfg)


@pytest.mark.parametrize("indent", ["", "  "], ids=["bare block", "within a configuration"])
def test_a_file_is_read(tmp_path: Path, indent: str) -> None:
    lines = [f"{indent}enabled: true", f"{indent}impl: memory"]
    path = write(tmp_path, "\n".join(["data_plane:", *lines] if indent else lines))
    assert load_data_plane(path) == parse_data_plane(MEMORY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("enabled: [", "line"),
        ("enabled: true\nenabled: false", "line 2"),
        ("\ttabs: 1", "line 1"),
        ("", "expected a data_plane block"),
        ("- enabled", "not a mapping"),
        ("7", "not a mapping"),
        ("memory", "expected a data_plane block"),
        ("enabled: true\nimpl: ${nowhere}", "impl.*nowhere"),
        ("enabled: true\nimpl: ???", "impl"),
        ("enabled: true\nimpl: memory\nstorage_capacity: 1.5", "storage_capacity is 1.5"),
    ],
)
def test_a_broken_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=says) as caught:
        load_data_plane(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_are_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "plane.yaml"
    path.write_bytes(b"\xff\xfe\x00\xd8")
    with pytest.raises(ConfigError, match=r"plane\.yaml"):
        load_data_plane(path)


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_can_not_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        load_data_plane(tmp_path / name)


@pytest.mark.parametrize("path", sorted(REFERENCE.glob("*.yaml")), ids=lambda path: path.stem)
def test_reference_configurations_are_accepted(path: Path) -> None:
    config = load_data_plane(path)
    assert path.stem == "_".join(filter(None, [config.impl, config.backend]))


def test_there_is_a_reference_configuration_for_every_built_in_plane() -> None:
    stems = {path.stem for path in REFERENCE.glob("*.yaml")}
    assert stems == {name.replace("/", "_") for name in BUILTIN}


@pytest.mark.parametrize("wrap", [dict, parse_data_plane, lambda block: {"data_plane": block}])
def test_the_factory_takes_a_block_in_any_form(wrap: Any) -> None:
    client = build_data_plane_client(wrap({**MEMORY, "storage_capacity": 3}))
    assert isinstance(client, MemoryClient)
    client.close()


def test_the_factory_attaches_to_the_running_plane() -> None:
    owner = build_data_plane_client(MEMORY)
    worker = build_data_plane_client(MEMORY, bootstrap=False)
    worker.put_samples(["a"], "p", tags=[{"n": 1}])
    owner.register_partition("p", [], 1, ["t"])
    owner.close()
    with pytest.raises(ConnectionError):
        worker.clear_samples(["a"], "p")


def test_a_disabled_plane_is_not_built() -> None:
    with pytest.raises(ConfigError, match="enabled is false"):
        build_data_plane_client({**MEMORY, "enabled": False})


def test_a_config_made_by_hand_is_checked_like_any_other() -> None:
    with pytest.raises(ConfigError, match="lacks backend"):
        build_data_plane_client(DataPlaneConfig(enabled=True, impl="transfer_queue"))


def test_the_memory_plane_refuses_another_planes_block() -> None:
    with pytest.raises(ConfigError, match="expected 'memory'"):
        MemoryClient(TRANSFER_QUEUE)


def test_the_memory_target_opens_a_client() -> None:
    client = TARGET.open(TARGET.config, True)
    assert not missing_methods(client)
    client.close()


def test_importing_the_backends_starts_no_engine() -> None:
    code = (
        "import sys, rlconform.backends, rlconform.backends.memory as m\n"
        "m.MemoryClient().close()\n"
        "print(sorted({'ray', 'transfer_queue', 'mooncake'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == "[]"
