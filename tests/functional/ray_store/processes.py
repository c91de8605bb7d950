"""Processes with a client of the plane, rows of a given size, and the marks of all tests here."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from ray import cloudpickle
from tensordict import TensorDict

from rlconform.backends.ray_store import TARGET
from rlconform.backends.ray_store.client import RayStoreClient

#: Of each test module here: one Ray serves them all.
MARKS = [pytest.mark.timeout(300), pytest.mark.xdist_group("ray_store")]

SOON = 20.0  # seconds; much longer than a call, shorter than the deadlines that would hide a hang
CONFIG: dict[str, Any] = dict(TARGET.config)

# Ray's processes can't import this module, so its classes are sent whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Process:
    """A Ray actor with an attached client."""

    def __init__(self) -> None:
        self.client = RayStoreClient(CONFIG, bootstrap=False)

    def ready(self) -> None:
        """Return once the client is attached."""

    def put(self, ids: list[str], kib: int) -> None:
        """Put rows of that size; each byte of a row is its index among the ids."""
        self.client.put_samples(ids, "p", rows_of(len(ids), kib))

    def put_but_never_commit(self, ids: list[str], kib: int, reached: str) -> None:
        """Store the bytes of a put, create a file, and hang instead of committing."""
        session = self.client._connection
        whole_call = session.call

        def call(method: str, *args: Any) -> Any:
            if method == "commit":
                Path(reached).touch()
                threading.Event().wait()
            return whole_call(method, *args)

        session.call = call
        self.put(ids, kib)

    def claim(self, rows: int) -> list[str]:
        """Claim rows without a timeout."""
        return self.client.claim_meta("p", "t", ["x"], rows, timeout_s=600.0).sample_ids

    def sums(self, ids: list[str]) -> list[int]:
        """The first and last byte of each row, added."""
        read = self.client.get_samples(ids, "p", ["x"])["x"]
        return (read[:, 0].long() + read[:, -1]).tolist()


def rows_of(n_rows: int, kib: int) -> TensorDict:
    values = torch.arange(n_rows, dtype=torch.uint8)
    return TensorDict({"x": values[:, None].expand(n_rows, kib * 1024)}, [n_rows])


def start_process() -> Any:
    process = ray.remote(Process).options(num_cpus=0, max_concurrency=2).remote()
    ray.get(process.ready.remote(), timeout=120)
    return process


def kill(process: Any) -> None:
    """Kill an actor's process and wait for its end; a few calls may still succeed before."""
    ray.kill(process)
    deadline = time.monotonic() + SOON
    while time.monotonic() < deadline:
        try:
            ray.get(process.ready.remote(), timeout=SOON)
        except ray.exceptions.RayActorError:
            return
    raise AssertionError(f"the process outlives its kill by {SOON:g} s")
