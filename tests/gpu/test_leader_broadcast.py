"""A leader's rows on a GPU: the other ranks of its replica get them on their own GPUs."""

from __future__ import annotations

import os
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, multiprocessing

from rlconform.plane import ReplicaGroup

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(180)]


def rows(device: str) -> dict[str, Any]:
    return {
        "ids": torch.arange(12, device=device).view(3, 4),
        "half": torch.arange(6, device=device, dtype=torch.bfloat16),
        "lengths": torch.tensor([4, 2, 3]),
        "logs": [{"role": "user", "token_ids": torch.arange(3, device=device)}, None],
    }


def tensors(value: dict[str, Any]) -> list[Tensor]:
    return [value["ids"], value["half"], value["lengths"], value["logs"][0]["token_ids"]]


def share(rank: int, backend: str, device: str, folder: str) -> None:
    """Get the leader's rows in a process, and compare them."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    store: Any = dist.FileStore(f"{folder}/store", 2)  # type: ignore[attr-defined]
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=limit)
    group = dist.new_group(backend=backend, timeout=limit)
    try:
        got = ReplicaGroup(group, timeout_s=60).share(lambda: rows(device), lambda value: value)
    finally:
        dist.destroy_process_group()
    assert got["logs"][1] is None
    for given, wanted in zip(tensors(got), tensors(rows(device)), strict=True):
        assert given.device.type == wanted.device.type
        assert torch.equal(given, wanted)
    Path(folder, f"done-{rank}").touch()


@pytest.mark.parametrize("backend", ["gloo", "cpu:gloo,cuda:nccl"])
def test_tensors_come_to_the_ranks_own_devices(gpus: int, backend: str) -> None:
    if "nccl" in backend and gpus < 2:
        pytest.skip(f"NCCL needs a GPU per rank; this machine has {gpus}")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(share, (backend, "cuda", folder), nprocs=2)
        assert sorted(file.name for file in Path(folder).glob("done-*")) == ["done-0", "done-1"]
