"""Checkpoints of a plane are complete or absent, and load only into an empty plane.

``tests/functional/test_checkpoints.py`` loads checkpoints of one engine into another one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from rlconform.backends import checkpoint
from rlconform.backends.memory import MemoryClient

DTYPES = (torch.bfloat16, torch.float8_e4m3fn, torch.complex64, torch.bool, torch.int64)


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    with closing(MemoryClient()) as opened:
        opened.register_partition("p", ["x"], 2, ["t"])
        yield opened


def put(client: MemoryClient, ids: list[str], **columns: Any) -> None:
    client.put_samples(ids, "p", fields=TensorDict(columns, batch_size=[len(ids)]))


def jagged_rows(*lengths: int) -> torch.Tensor:
    """A column with a row of each length, each filled with its number."""
    rows = [torch.full((length,), row) for row, length in enumerate(lengths)]
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def reloaded(client: MemoryClient, folder: Path) -> MemoryClient:
    """A new plane with the contents of the client's plane."""
    client.save_checkpoint(folder)
    client.close()
    fresh = MemoryClient()
    assert fresh.load_checkpoint(folder) == {}
    return fresh


def test_tags_cursors_and_groups_come_back(tmp_path: Path) -> None:
    ids = [f"u{prompt}_g{n}" for prompt in range(3) for n in range(2)]
    with closing(MemoryClient()) as client:
        client.register_partition("p", ["x"], 6, ["t", "u"], grpo_group_size=2)
        put(client, ids, x=torch.arange(6))
        client.put_samples(["alone", *ids[:1]], "p", tags=[{"std": 0.5}, {"input_lengths": 7}])
        claimed = client.claim_meta("p", "t", ["x"], 2, blocking=False).sample_ids
        client.clear_samples(ids[5:], "p")
        fresh = reloaded(client, tmp_path / "saved")
    with closing(fresh):
        assert fresh.list_sample_ids("p") == ["alone", *ids[:5]]
        assert claimed == ids[:2]
        # of the third group one row is left
        assert fresh.claim_meta("p", "t", ["x"], 6, blocking=False).sample_ids == ids[2:4]
        assert fresh.claim_meta("p", "u", ["x"], 6, blocking=False).sample_ids == ids[:4]
        put(fresh, ["alone"], x=torch.ones(1, dtype=torch.int64))
        put(fresh, ids[5:], x=torch.ones(1, dtype=torch.int64))
        last = fresh.claim_meta("p", "u", ["x"], 6, blocking=False)
        assert sorted(last.sample_ids) == ids[4:]
        assert not fresh.check_consumption_status("p", ["t"])


def test_jagged_and_object_columns_come_back(client: MemoryClient, tmp_path: Path) -> None:
    rows = [torch.arange(3), torch.arange(0), torch.arange(2)]
    log = np.empty(3, dtype=object)
    log[:] = [[{"role": "user", "content": "é"}], [], {"a": (1, None)}]
    tokens = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    put(client, ["a", "b", "c"], x=tokens, log=log, even=jagged_rows(4, 4, 4))
    with closing(reloaded(client, tmp_path / "saved")) as fresh:
        batch = fresh.get_samples(["a", "b", "c"], "p", ["x", "log", "even"])
        assert [row.tolist() for row in batch["x"].unbind()] == [[0, 1, 2], [], [0, 1]]
        assert torch.nested.to_padded_tensor(batch["x"], padding=-1).shape == (3, 3)
        assert list(batch["log"]) == list(log)
        assert batch["even"].tolist() == [[0] * 4, [1] * 4, [2] * 4]


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_come_back_exactly(client: MemoryClient, tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.tensor([[0.0, 1.0], [1.0, 0.0]]).to(dtype)
    put(client, ["a", "b"], x=values)
    with closing(reloaded(client, tmp_path / "saved")) as fresh:
        back = fresh.get_samples(["b", "a"], "p", ["x"])["x"]
    assert back.dtype == dtype
    assert torch.equal(back.flip(0).view(torch.uint8), values.view(torch.uint8))


def test_rows_with_unlike_fields_and_shapes_come_back(client: MemoryClient, tmp_path: Path) -> None:
    put(client, ["a"], x=torch.zeros(1, 2))
    put(client, ["b"], x=torch.ones(1, 2, 3), y=torch.ones(1))
    put(client, ["c"], x=torch.ones(1, 5), y=torch.zeros(1))
    with closing(reloaded(client, tmp_path / "saved")) as fresh:
        assert fresh.get_samples(["a"], "p", ["x"])["x"].tolist() == [[0.0, 0.0]]
        assert fresh.get_samples(["b"], "p", ["x"])["x"].shape == (1, 2, 3)
        assert fresh.get_samples(["c", "b"], "p", ["y"])["y"].tolist() == [0.0, 1.0]
        oldest = fresh.claim_meta("p", "t", ["y"], 1, blocking=False)
        assert oldest.sample_ids == ["b"]


def test_more_rows_than_one_file_holds_come_back(
    client: MemoryClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "_RUN", 4)
    ids = [f"r{n}" for n in range(11)]
    put(client, ids, x=torch.arange(11))
    with closing(reloaded(client, tmp_path / "saved")) as fresh:
        assert fresh.get_samples(ids, "p", ["x"])["x"].tolist() == list(range(11))
        claimed = fresh.claim_meta("p", "t", ["x"], 11, blocking=False)
    assert claimed.sample_ids == ids


def test_a_partition_without_rows_stays_registered(client: MemoryClient, tmp_path: Path) -> None:
    with closing(reloaded(client, tmp_path / "saved")) as fresh:
        assert fresh.claim_meta("p", "t", ["x"], 1, blocking=False).sample_ids == []


def test_a_save_that_fails_leaves_what_was_there(
    client: MemoryClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(client, ["a"], x=torch.ones(1))
    client.save_checkpoint(tmp_path / "saved", metadata={"step": 1})

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(checkpoint, "_write_columns", full)
    with pytest.raises(OSError, match="the disk is full"):
        client.save_checkpoint(tmp_path / "saved", metadata={"step": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    client.close()
    with closing(MemoryClient()) as fresh:
        assert fresh.load_checkpoint(tmp_path / "saved") == {"step": 1}


def test_an_earlier_checkpoint_is_there_again_if_it_can_not_be_replaced(
    client: MemoryClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.save_checkpoint(tmp_path / "saved", metadata={"step": 1})
    client.save_checkpoint(tmp_path / "saved", metadata={"step": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    rename = Path.rename

    def rename_finished_only(path: Path, target: Path) -> Path:
        if target.name == "saved" and "3" in (path / "metadata.json").read_text("utf-8"):
            raise PermissionError("no")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", rename_finished_only)
    with pytest.raises(PermissionError):
        client.save_checkpoint(tmp_path / "saved", metadata={"step": 3})
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    client.close()
    with closing(MemoryClient()) as fresh:
        assert fresh.load_checkpoint(tmp_path / "saved") == {"step": 2}


def test_a_folder_of_something_else_is_left_alone(client: MemoryClient, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept", "utf-8")
    with pytest.raises(FileExistsError, match="is no checkpoint"):
        client.save_checkpoint(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("metadata", [{"a": {1}}, {"a": float("nan")}, ["a"], "a"])
def test_metadata_is_a_dict_that_json_can_hold(
    client: MemoryClient, tmp_path: Path, metadata: Any
) -> None:
    with pytest.raises((TypeError, ValueError)):
        client.save_checkpoint(tmp_path / "saved", metadata=metadata)
    assert list(tmp_path.iterdir()) == []


def test_a_plane_that_holds_partitions_loads_nothing(client: MemoryClient, tmp_path: Path) -> None:
    put(client, ["a"], x=torch.ones(1))
    client.save_checkpoint(tmp_path / "saved")
    with pytest.raises(RuntimeError, match=r"empty plane.*'p'"):
        client.load_checkpoint(tmp_path / "saved")
    assert client.list_sample_ids("p") == ["a"]


def test_a_load_that_fails_leaves_the_plane_empty(client: MemoryClient, tmp_path: Path) -> None:
    put(client, ["a"], x=torch.ones(1))
    put(client, ["b"], y=torch.ones(1))
    client.save_checkpoint(tmp_path / "saved")
    client.close()
    lost, there = tmp_path / "saved" / "rows-1.npz", tmp_path / "rows-1.npz"
    lost.rename(there)
    with closing(MemoryClient()) as fresh:
        with pytest.raises(FileNotFoundError):
            fresh.load_checkpoint(tmp_path / "saved")
        assert fresh.list_sample_ids("p") == []
        with pytest.raises(KeyError):
            fresh.claim_meta("p", "t", ["x"], 1, blocking=False)
        there.rename(lost)
        assert fresh.load_checkpoint(tmp_path / "saved") == {}  # a second load is allowed
        assert fresh.list_sample_ids("p") == ["a", "b"]


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with closing(MemoryClient()) as fresh:
        with pytest.raises(FileNotFoundError):
            fresh.load_checkpoint(tmp_path)
        (tmp_path / "state.msgpack").write_bytes(b"\x81\xa6format\xa1x")
        with pytest.raises(ValueError, match="no checkpoint of format"):
            fresh.load_checkpoint(tmp_path)
