"""NeMo-RL's ``data_plane`` block: supported keys are accepted; an error names each other key."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

from rlconform.backends import build_data_plane_client, parse_data_plane
from rlconform.backends.memory import MemoryClient
from rlconform.contract import ConfigError

GIB = 2**30

#: The block of NeMo-RL's examples, in the older form with flat sizes and in the newer form.
FLAT: dict[str, Any] = {
    "enabled": True,
    "impl": "transfer_queue",
    "backend": "simple",
    "storage_capacity": 1_000_000,
    "num_storage_units": 2,
    "claim_meta_poll_interval_s": 0.5,
    "global_segment_size": 512 * GIB,
    "local_buffer_size": 64 * GIB,
}
NESTED: dict[str, Any] = {
    "enabled": True,
    "impl": "transfer_queue",
    "backend": "simple",
    "claim_meta_poll_interval_s": 0.5,
    "simple": {"storage_capacity": 4096, "num_storage_units": 2},
    "mooncake_cpu": {
        "global_segment_size": 8 * GIB,
        "local_buffer_size": 1 * GIB,
        "reuse_registered_buffers": True,
        "staging_buffer_size": GIB // 4,
        "use_gdr": False,
        "gdr_staging_buffer_mb": 1024,
        "checkpoint": {"enabled": False, "storage_root": None},
    },
}
MEMORY: dict[str, Any] = {"enabled": True, "impl": "memory"}


def mooncake(**changes: Any) -> dict[str, Any]:
    """The nested block with Mooncake and only features that TCP supports."""
    engine = {**NESTED["mooncake_cpu"], "reuse_registered_buffers": False, **changes}
    return {**NESTED, "backend": "mooncake_cpu", "mooncake_cpu": engine}


def test_the_flat_block_is_taken() -> None:
    config = parse_data_plane({**FLAT, "observability": {"enabled": False}})
    assert (config.storage_capacity, config.num_storage_units) == (1_000_000, 2)


def test_the_sizes_come_from_the_block_of_the_engine_that_is_used() -> None:
    simple = parse_data_plane(OmegaConf.create({"data_plane": NESTED}))
    assert (simple.storage_capacity, simple.num_storage_units) == (4096, 2)
    stored = parse_data_plane(mooncake())
    assert (stored.global_segment_size, stored.local_buffer_size) == (8 * GIB, GIB)


def test_what_a_nested_block_leaves_out_is_as_nemo_rl_has_it() -> None:
    simple = parse_data_plane({**NESTED, "simple": {"num_storage_units": 3}})
    assert (simple.storage_capacity, simple.num_storage_units) == (1_000_000, 3)
    stored = parse_data_plane({**NESTED, "backend": "mooncake_cpu", "mooncake_cpu": None})
    assert (stored.global_segment_size, stored.local_buffer_size) == (64 * GIB, 4 * GIB)


def test_a_parsed_nested_block_is_taken_again() -> None:
    config = parse_data_plane(NESTED)
    assert parse_data_plane(config.model_dump(exclude_none=True)) == config


def test_a_size_may_stand_in_both_places_if_it_is_one_size() -> None:
    assert parse_data_plane({**NESTED, "storage_capacity": 4096}).storage_capacity == 4096
    with pytest.raises(ConfigError, match=r"storage_capacity is 64, but simple\.storage_capacity"):
        parse_data_plane({**NESTED, "storage_capacity": 64})


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({**FLAT, "controller_address": "10.0.0.1:5555"}, "controller_address is '10.0.0.1:5555'"),
        ({**MEMORY, "controller_address": "here"}, "controller_address is 'here'"),
        ({**NESTED, "simple": {}}, r"lacks simple\.num_storage_units"),
        ({**NESTED, "simple": None}, r"lacks simple\.num_storage_units"),
        ({**NESTED, "simple": 3}, "simple is 3, not a mapping"),
        ({**NESTED, "simple": {"num_storage_unit": 2}}, "did you mean 'num_storage_units'"),
        ({**NESTED, "simple": {"num_storage_units": 0}}, "num_storage_units is 0"),
        (
            {**NESTED, "simple": {"num_storage_units": 2, "storage_unit_placement": "train"}},
            r"simple\.storage_unit_placement is 'train', which is not supported",
        ),
        (mooncake(use_gdr=True), r"mooncake_cpu\.use_gdr is True, which is not supported"),
        (mooncake(reuse_registered_buffers=True), r"mooncake_cpu\.reuse_registered_buffers is"),
        (mooncake(checkpoint={"enabled": True}), r"mooncake_cpu\.checkpoint is"),
        (mooncake(checkpoint="yes"), r"mooncake_cpu\.checkpoint is"),
        (mooncake(storage_unit_segment_size=1), r"mooncake_cpu\.storage_unit_segment_size is 1"),
        ({**FLAT, "ack_timeout_ms": 0}, "ack_timeout_ms is 0"),
        ({**FLAT, "ack_timeout_ms": "1s"}, "ack_timeout_ms is '1s'"),
        ({**MEMORY, "ack_timeout_ms": 5}, "ack_timeout_ms is not supported by impl 'memory'"),
        ({**MEMORY, "simple": {}}, "simple is not supported by impl 'memory'"),
        ({**FLAT, "observability": {"enabled": "yes"}}, r"observability\.enabled is 'yes'"),
        (
            {**FLAT, "observability": {"enabled": True, "verify_tensor_hash": True}},
            r"observability\.verify_tensor_hash is True",
        ),
        ({**FLAT, "observability": {"enabled": True, "every": 3}}, r"observability\.every is 3"),
    ],
)
def test_what_can_not_be_honoured_is_refused_by_name(block: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse_data_plane(block, source="grpo.yaml")
    assert str(caught.value).startswith("grpo.yaml: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["controller_address", "ack_timeout_ms", "observability", "simple"])
def test_an_optional_key_may_be_null(key: str) -> None:
    assert parse_data_plane({**FLAT, key: None}) == parse_data_plane(FLAT)


def test_each_operation_is_reported_to_the_callback() -> None:
    events: list[dict[str, Any]] = []
    observability = {"enabled": True, "callback": events.append}
    client = build_data_plane_client({**MEMORY, "observability": observability})
    client.register_partition("p", ["x"], 2, ["read"])
    client.put_samples(["a", "b"], "p", TensorDict({"x": torch.zeros(2, 4)}, [2]))
    client.get_samples(["a"], "p", ["x"])
    with pytest.raises(KeyError):
        client.get_samples(["c"], "p", ["x"])
    client.clear_samples(None, "p")
    client.close()
    seen = [(each["op"], each["n_keys"], each["n_bytes"], each["status"]) for each in events]
    assert seen == [
        ("register", 0, 0, "ok"),
        ("put", 2, 32, "ok"),
        ("get", 1, 16, "ok"),
        ("get", 1, 0, "error"),
        ("clear", 2, 32, "ok"),
        ("close", 0, 0, "ok"),
    ]
    assert {each["partition_id"] for each in events} == {"p", ""}
    assert all(each["wall_ms"] >= 0 for each in events)


def test_the_optional_methods_are_reported_as_well(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []
    observability = {"enabled": True, "callback": events.append}
    client: Any = build_data_plane_client({**MEMORY, "observability": observability})
    assert client.load_checkpoint(saved_by_another_plane(tmp_path / "saved")) == {"step": 3}
    assert client.list_sample_ids("p") == ["a"]
    client.save_checkpoint(tmp_path / "again", metadata={"step": 4})
    with pytest.raises(RuntimeError):
        client.load_checkpoint(tmp_path / "again")
    client.close()
    assert [(each["op"], each["partition_id"], each["status"]) for each in events] == [
        ("load_checkpoint", "", "ok"),
        ("list_sample_ids", "p", "ok"),
        ("save_checkpoint", "", "ok"),
        ("load_checkpoint", "", "error"),
        ("close", "", "ok"),
    ]


def saved_by_another_plane(folder: Path) -> Path:
    with closing(MemoryClient()) as other:
        other.put_samples(["a"], "p", tags=[{"std": 0.5}])
        other.save_checkpoint(folder, metadata={"step": 3})
    return folder


def test_without_a_callback_operations_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="rlconform.backends.observability"):
        client = build_data_plane_client({**MEMORY, "observability": {"enabled": True}})
        client.clear_samples(["a"], "p")
        client.close()
    assert [record.args["op"] for record in caplog.records] == ["clear", "close"]  # type: ignore[index,call-overload]


def test_a_disabled_observability_leaves_the_client_alone() -> None:
    client = build_data_plane_client({**MEMORY, "observability": {"enabled": False}})
    assert type(client).__name__ == "MemoryClient"
    client.close()


def test_a_callback_is_written_by_its_name() -> None:
    block = {**MEMORY, "observability": {"enabled": True, "callback": print}}
    assert '"callback":"print"' in parse_data_plane(block).model_dump_json()
