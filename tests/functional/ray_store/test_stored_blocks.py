"""Blocks of rows: small and large ones, compaction, wasted memory, capacity."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

import pytest
import ray
import torch
from ray._private.internal_api import memory_summary
from tensordict import NonTensorData, NonTensorStack, TensorDict

from rlconform.backends.index import SLACK_BYTES
from rlconform.backends.ray_runtime import RayRuntime
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import CapacityExceeded, DataPlaneError

from .processes import CONFIG, MARKS, rows_of

pytestmark = MARKS


@pytest.mark.parametrize("kib", [1, SLACK_BYTES // 1024 - 1, SLACK_BYTES // 1024, 512])
def test_small_and_large_puts_mix(owner: RayStoreClient, kib: int) -> None:
    owner.put_samples(["a"], "p", rows_of(1, kib))
    owner.put_samples(["b"], "p", rows_of(1, kib))
    owner.put_samples(["c"], "p", TensorDict({"x": torch.ones(1, 300 * 1024).byte()}, [1]))
    logs = NonTensorStack(*[NonTensorData({"turn": [i, "é"]}) for i in range(2)])
    owner.put_samples(["c", "a"], "p", TensorDict({"log": logs}, [2]))
    read = owner.get_samples(["c", "a"], "p", ["log", "x"])
    assert [row.shape for row in read["x"].unbind()] == [(300 * 1024,), (kib * 1024,)]
    assert read.get("log").tolist() == [{"turn": [0, "é"]}, {"turn": [1, "é"]}]


def test_the_capacity_counts_rows(ray_runtime: RayRuntime) -> None:
    assert ray_runtime is not None
    with closing(RayStoreClient({**CONFIG, "storage_capacity": 3})) as client:
        client.put_samples(["a", "b"], "p", rows_of(2, 1))
        with pytest.raises(CapacityExceeded):
            client.put_samples(["b", "c", "d"], "p", rows_of(3, 1))
        with pytest.raises(DataPlaneError):
            client.get_samples(["c"], "p", ["x"])
        client.put_samples(["b", "c"], "p", rows_of(2, 1))


def test_waste_is_bounded_by_what_is_live(owner: RayStoreClient) -> None:
    ids = [f"r{i}" for i in range(64)]
    owner.put_samples(ids, "p", rows_of(64, 512))
    for gone in range(63):
        owner.clear_samples(ids[gone : gone + 1], "p")
        usage = owner.usage()
        assert usage.rows == 63 - gone
        assert usage.wasted_bytes < max(usage.live_bytes, SLACK_BYTES)
        left = owner.get_samples(ids[gone + 1 :], "p", ["x"])["x"]
        assert left[:, 77].tolist() == list(range(gone + 1, 64))


def test_cleared_rows_give_their_memory_back_while_neighbours_live(owner: RayStoreClient) -> None:
    ids = [f"r{i}" for i in range(64)]
    owner.put_samples(ids, "p", rows_of(64, 1024))
    owner.clear_samples(ids[:60], "p")
    waited = threading.Event()
    for _ in range(400):  # Ray frees an object shortly after its last reference is dropped
        if stored_mib() < 16:
            break
        waited.wait(0.05)
    assert stored_mib() < 16
    assert owner.get_samples(ids[60:], "p", ["x"])["x"][:, 5].tolist() == [60, 61, 62, 63]


def stored_mib() -> int:
    """Mebibytes used in the object store of this Ray."""
    summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    line = next(x for x in summary.splitlines() if "Plasma memory" in x)
    return int(line.split("usage ")[1].split(" MiB")[0])


def test_rows_are_written_anew_while_others_read_and_clear_them(owner: RayStoreClient) -> None:
    """Threads clear, overwrite and read the rows of shared blocks concurrently."""
    ids = [f"r{i}" for i in range(120)]
    owner.put_samples(ids, "p", rows_of(120, 16))
    wrong: list[str] = []

    def clear(part: int) -> None:
        for i in range(part, 120, 3):
            if i % 10:
                owner.clear_samples([ids[i]], "p")

    def overwrite() -> None:
        for turn in range(1, 20):
            some = ids[10 * (turn % 12) : 10 * (turn % 12) + 1]
            again = torch.full((1, 16 * 1024), int(some[0][1:]), dtype=torch.uint8)
            owner.put_samples(some, "p", TensorDict({"x": again}, [1]))

    def read() -> None:
        for _ in range(15):
            for i in range(0, 120, 10):
                if owner.get_samples([ids[i]], "p", ["x"])["x"].unique().tolist() != [i]:
                    wrong.append(ids[i])

    work = [*(partial(clear, part) for part in range(3)), overwrite, read]
    with ThreadPoolExecutor(len(work)) as pool:
        for done in [pool.submit(each) for each in work]:
            done.result(120)
    assert wrong == []
    usage = owner.usage()
    assert usage.rows == 12
    assert usage.wasted_bytes < max(usage.live_bytes, SLACK_BYTES)


def test_small_blocks_are_written_anew_too(owner: RayStoreClient) -> None:
    """The values are small enough for the message, but their waste is enough for a compaction."""
    ids = [f"r{i}" for i in range(3000)]
    columns = {f"f{n}": torch.arange(3000.0) + n for n in range(5)}
    owner.put_samples(ids, "p", TensorDict(columns, [3000]))
    owner.clear_samples(ids[:1600], "p")
    assert owner.usage().wasted_bytes == 0
    assert owner.get_samples(ids[1600:], "p", ["f3"])["f3"].tolist() == list(range(1603, 3003))


def test_what_was_put_is_put_though_the_rewriting_fails(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"r{i}" for i in range(8)]
    owner.put_samples(ids, "p", rows_of(8, 512))

    def full(_parcel: object) -> None:
        raise CapacityExceeded("full")

    with monkeypatch.context() as patch:
        patch.setattr(owner._connection, "store", full)
        owner.clear_samples(ids[:5], "p")  # makes the block due for compaction
    assert owner.usage().rows == 3
    assert owner.get_samples(ids[5:], "p", ["x"])["x"][:, 9].tolist() == [5, 6, 7]
    owner.clear_samples(ids[5:7], "p")  # makes it due again
    assert owner.usage().wasted_bytes == 0
    assert owner.get_samples(ids[7:], "p", ["x"])["x"].unique().tolist() == [7]


def test_a_read_finds_rows_that_are_moved_between_its_two_looks(
    owner: RayStoreClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"r{i}" for i in range(8)]
    owner.put_samples(ids, "p", rows_of(8, 512))
    whole_map = owner._connection.map
    looks = []

    def moved_first(references: Any) -> Any:
        looks.append(references)
        return None if len(looks) == 1 else whole_map(references)

    monkeypatch.setattr(owner._connection, "map", moved_first)
    assert owner.get_samples(ids[2:3], "p", ["x"])["x"].unique().tolist() == [2]
    assert len(looks) == 2
