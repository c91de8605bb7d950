"""Rank processes that all tests share, the groups that they form, and the rows of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
import torch

from rlconform.backends.ray_runtime import ensure_ray
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.contract.fields import GLOBAL_FORWARD_PAD_SEQLEN
from rlconform.plane import kv_first_write
from rlconform.wire import pack_per_token_field

from .calls import LONG, call
from .rank_actor import CONFIG, LENGTHS, SOON, WIDTH, Rank


class RankPool:
    """Four rank processes that all tests share, no test needs more; a dead one is replaced."""

    def __init__(self) -> None:
        self.idle: list[Any] = []

    def take(self, count: int) -> list[Any]:
        while len(self.idle) < 4:
            rank = ray.remote(Rank).options(num_cpus=0, max_concurrency=3).remote()
            self.idle.append(rank)
        taken, self.idle = self.idle[:count], self.idle[count:]
        ray.get([rank.count_reads.remote() for rank in taken], timeout=120)
        return taken

    def give_back(self, ranks: list[Any]) -> None:
        for rank in ranks:
            try:
                ray.get(rank.leave.remote(), timeout=SOON)
            except ray.exceptions.RayActorError:
                continue
            self.idle.append(rank)


@pytest.fixture(scope="package")
def owner() -> Iterator[RayStoreClient]:
    with ensure_ray():
        client = RayStoreClient(CONFIG)
        yield client
        client.close()


@pytest.fixture(scope="package")
def pool(owner: RayStoreClient) -> RankPool:
    assert owner is not None
    return RankPool()


@pytest.fixture
def join(pool: RankPool, tmp_path: Path) -> Iterator[Callable[..., list[Any]]]:
    """``join(2, 2)`` makes two replicas of two ranks each, one process per rank."""
    taken: list[Any] = []

    def form(*sizes: int, timeout_s: float = LONG) -> list[Any]:
        taken.extend(pool.take(sum(sizes)))
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        replicas = [list(range(at, at + size)) for at, size in zip(starts, sizes, strict=True)]
        store = str(tmp_path / "store")
        call(taken, "join", lambda rank: (store, rank, replicas, timeout_s))
        return list(taken)

    yield form
    pool.give_back(taken)


def tokens() -> torch.Tensor:
    return torch.arange(8)[:, None] * 100 + torch.arange(9)


@pytest.fixture
def meta(owner: RayStoreClient, tmp_path: Path) -> KVBatchMeta:
    """Eight rows, with columns of every kind."""
    ids = [f"r{i}" for i in range(8)]
    batch = {
        "input_ids": tokens(),
        "input_lengths": torch.tensor(LENGTHS),
        "generation_logprobs": torch.randn(8, 9).bfloat16(),
        "token_mask": torch.ones(8, 9, dtype=torch.int32),
        "sample_mask": torch.tensor([True, False] * 4),
        "scales": torch.randn(8, 3).to(torch.float8_e5m2),
        "routes": pack_per_token_field(tokens()[..., None].expand(8, 9, 2).short(), LENGTHS),
        "pixels": torch.full((8, 2, 3), float("nan")),
        "nothing": torch.empty(8, 0, 4, dtype=torch.float16),
        "message_log": [[{"role": "user", "ids": torch.arange(i)}, None] for i in range(8)],
    }
    info = {GLOBAL_FORWARD_PAD_SEQLEN: WIDTH}
    return kv_first_write(owner, batch, ids, f"p-{tmp_path.name}", extra_info=info)
