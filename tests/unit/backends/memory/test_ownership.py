"""The memory plane copies rows: it neither keeps nor shares a caller's tensors."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.backends.memory import MemoryClient

MIB = 1 << 20


@pytest.fixture
def client() -> Iterator[MemoryClient]:
    client = MemoryClient()
    yield client
    client.close()


def jagged(values: torch.Tensor) -> torch.Tensor:
    return torch.nested.nested_tensor_from_jagged(values, torch.tensor([0, 1, 3]))


LEAVES: dict[str, Callable[[torch.Tensor], Any]] = {
    "slice": lambda base: base[10:12],
    "transposed": lambda base: base[:3, :2].t(),
    "expanded": lambda base: base[:1].expand(2, -1),
    "jagged over a slice": lambda base: jagged(base[5:8]),
    "tensors in objects": lambda base: NonTensorStack(
        NonTensorData({"tokens": base[3], "log": [base[4], (base[5],)]}), NonTensorData(base[6])
    ),
}


@pytest.mark.parametrize("leaf_of", LEAVES.values(), ids=LEAVES.keys())
def test_a_row_does_not_keep_the_callers_storage(
    client: MemoryClient, leaf_of: Callable[[torch.Tensor], Any]
) -> None:
    array = np.zeros((64, 64))
    alive = weakref.ref(array)
    base = torch.from_numpy(array)
    client.put_samples(["a", "b"], "p", TensorDict({"x": leaf_of(base)}, [2]))
    del array, base
    gc.collect()
    assert alive() is None
    assert len(client.get_samples(["a", "b"], "p", ["x"])["x"]) == 2


def test_a_result_has_memory_of_its_own(client: MemoryClient) -> None:
    wide = torch.arange(6).reshape(2, 3)
    fields = TensorDict({"dense": wide, "jagged": jagged(torch.arange(3))}, [2])
    client.put_samples(["a", "b"], "p", fields)
    first, second = (client.get_samples(["a", "b"], "p", ["dense", "jagged"]) for _ in range(2))
    first["dense"].fill_(-1)
    first["jagged"].values().fill_(-1)
    assert second["dense"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second["jagged"].values().tolist() == [0, 1, 2]
    assert second["dense"].untyped_storage().nbytes() == second["dense"].nbytes
    assert client.get_samples(["a"], "p", ["dense"])["dense"].tolist() == [[0, 1, 2]]


def test_a_row_does_not_follow_the_callers_offsets(client: MemoryClient) -> None:
    offsets = torch.tensor([0, 1, 3])
    leaf = torch.nested.nested_tensor_from_jagged(torch.arange(3), offsets)
    client.put_samples(["a", "b"], "p", TensorDict({"x": leaf}, [2]))
    offsets.copy_(torch.tensor([0, 3, 3]))
    read = client.get_samples(["a", "b"], "p", ["x"])["x"]
    assert [row.tolist() for row in read.unbind()] == [[0], [1, 2]]


def test_objects_are_copied_in_and_out(client: MemoryClient) -> None:
    log: dict[str, Any] = {"turns": [("user", {1, 2})], "end": None}
    client.put_samples(["a"], "p", TensorDict({"log": NonTensorStack(NonTensorData(log))}, [1]))
    log["turns"].append("changed")
    got = client.get_samples(["a"], "p", ["log"]).get("log").tolist()[0]
    assert got == {"turns": [("user", {1, 2})], "end": None}
    got["turns"].clear()
    again = client.get_samples(["a"], "p", ["log"]).get("log").tolist()[0]
    assert again == {"turns": [("user", {1, 2})], "end": None}


def test_a_view_within_an_object_is_stored_by_its_own_size(client: MemoryClient) -> None:
    base = torch.zeros(1000)
    log = [{"turns": [(base[:2],)]}]
    client.put_samples(["a"], "p", TensorDict({"log": NonTensorStack(NonTensorData(log))}, [1]))
    got = client.get_samples(["a"], "p", ["log"]).get("log").tolist()[0]
    assert got[0]["turns"][0][0].untyped_storage().nbytes() == 8


def test_tags_are_copied_in_and_out(client: MemoryClient) -> None:
    tags = [{"version": 1}]
    client.register_partition("p", ["x"], 1, ["t", "u"])
    client.put_samples(["a"], "p", TensorDict({"x": torch.zeros(1)}, [1]), tags=tags)
    tags[0]["version"] = 2
    claimed = client.claim_meta("p", "t", ["x"], 1)
    assert claimed.tags == [{"version": 1}]
    claimed.tags[0]["version"] = 3
    assert client.claim_meta("p", "u", ["x"], 1).tags == [{"version": 1}]


def test_a_cleared_row_gives_its_memory_back_while_its_neighbour_stays(
    client: MemoryClient,
) -> None:
    process = psutil.Process()
    client.put_samples(["a", "b"], "p", TensorDict({"x": torch.ones(2, 64 * MIB // 4)}, [2]))
    full = process.memory_info().rss
    client.clear_samples(["a"], "p")
    assert full - process.memory_info().rss > 48 * MIB
    assert client.get_samples(["b"], "p", ["x"])["x"].sum() == 64 * MIB // 4


@pytest.mark.parametrize(
    ("puts", "layout"),
    [
        ([("dense", [2, 2])], "dense"),
        ([("jagged", [2, 2])], "dense"),
        ([("jagged", [0, 0])], "dense"),
        ([("jagged", [2])], "dense"),
        ([("jagged", [2, 3])], "jagged"),
        ([("dense", [0, 0])], "dense"),
        ([("dense", [2]), ("jagged", [2])], "dense"),
        ([("dense", [2]), ("jagged", [3])], "jagged"),
        ([("dense", [2]), ("dense", [3])], "jagged"),
    ],
)
def test_the_layout_of_a_read_follows_the_rows(
    client: MemoryClient, puts: list[tuple[str, list[int]]], layout: str
) -> None:
    rows: list[torch.Tensor] = []
    for put_as, lengths in puts:
        ids = [f"row{len(rows) + index}" for index in range(len(lengths))]
        new = [torch.randn(length, 3) for length in lengths]
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        leaf = (
            torch.stack(new)
            if put_as == "dense"
            else torch.nested.nested_tensor_from_jagged(torch.cat(new), offsets)
        )
        client.put_samples(ids, "p", TensorDict({"x": leaf}, [len(ids)]))
        rows += new
    read = client.get_samples([f"row{index}" for index in range(len(rows))], "p", ["x"])["x"]
    assert ("jagged" if read.is_nested else "dense") == layout
    assert all(torch.equal(got, row) for got, row in zip(read.unbind(), rows, strict=True))


def test_rows_that_no_tensor_holds_are_refused_with_the_fields_name(client: MemoryClient) -> None:
    client.put_samples(["a"], "p", TensorDict({"image": torch.zeros(1, 2, 3)}, [1]))
    client.put_samples(["b"], "p", TensorDict({"image": torch.zeros(1, 2, 4)}, [1]))
    with pytest.raises(ValueError, match="image"):
        client.get_samples(["a", "b"], "p", ["image"])


def test_a_change_to_a_receipt_changes_nothing_that_the_plane_keeps(client: MemoryClient) -> None:
    ids = [f"r{n}" for n in range(2000)]
    fields = TensorDict({"x": torch.zeros(len(ids), 256)}, [len(ids)])
    receipt = client.put_samples(ids, "p", fields)
    receipt.sample_ids.reverse()
    client.clear_samples(ids[:1900], "p")
    with client._engine._locked() as index:
        assert index.usage().wasted_bytes == 0
