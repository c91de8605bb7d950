"""Policy workers as ranks in several processes, with gloo groups and a ray_store plane.

test ── join, fetch ──▶ Rank (a Ray actor): a worker, its client, its rank of a gloo group
     ── break_get ────▶ makes its next read raise, or hang until released
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from ray import cloudpickle
from tensordict import TensorDict

from rlconform.backends.ray_store import TARGET
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import ForeignRow, KVBatchMeta
from rlconform.plane.group_broadcast import ReplicaGroup
from rlconform.plane.worker_mixin import DataPlaneWorkerMixin, ModelRanks
from rlconform.wire import rows_of

CONFIG: dict[str, Any] = dict(TARGET.config)
PAD = 7
WIDTH = 12
LENGTHS = [3, 0, 9, 1, 5, 5, 2, 8]
SOON = 20.0  # seconds; much longer than a fetch, shorter than the timeout that would hide a hang

# Ray's processes can't import this module, so its classes are sent whole.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


@dataclass(frozen=True)
class CallResult:
    """What a call returned or raised in its process, and how long it took."""

    value: Any
    error: type[BaseException] | None
    text: str
    seconds: float


class Rank(DataPlaneWorkerMixin):
    """One rank of a run, as a Ray actor."""

    def __init__(self) -> None:
        self.client = RayStoreClient(CONFIG, bootstrap=False)
        self.whole_get = self.client.get_samples
        self.reading, self.release = threading.Event(), threading.Event()
        self.reads = 0
        self.client.get_samples = self.get  # type: ignore[method-assign]
        self.fault = ""

    def get(self, **asked: Any) -> TensorDict:
        """The plane's get_samples, or the fault that ``break_get`` set."""
        self.reads += 1
        self.reading.set()
        if self.fault == "raise":
            raise ForeignRow("bytes of another row")
        if self.fault == "interrupt":
            raise KeyboardInterrupt
        if self.fault == "hang":
            self.release.wait()
        return self.whole_get(**asked)

    def join(self, store: str, rank: int, replicas: list[list[int]], timeout_s: float) -> None:
        """Form the run's groups, and attach."""
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        world = sum(map(len, replicas))
        dist = torch.distributed
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, world),  # type: ignore[attr-defined]
            rank=rank,
            world_size=world,
        )
        groups = [dist.new_group(ranks) for ranks in replicas]
        mine = next(i for i, ranks in enumerate(replicas) if rank in ranks)
        self.replica = ReplicaGroup(groups[mine], timeout_s=timeout_s)
        self.reads, self.fault = 0, ""
        self.reading.clear()
        self.release.clear()
        self.stand(ModelRanks(tp=self.replica.rank, cp=0, pp=0))

    def stand(self, place: ModelRanks, alone: bool = False) -> None:
        """Attach with these ranks, and read ``alone`` or through the replica group."""
        self.attach_plane(
            self.client,
            ranks=place,
            replica=None if alone else self.replica,
            pad_values={"input_ids": PAD, "generation_logprobs": float("nan")},
        )

    def fetch(self, shard: KVBatchMeta, *args: Any, **kwargs: Any) -> CallResult:
        """``fetch_shard``: the batch as plain bytes, and the packing."""

        def call() -> Any:
            work = self.fetch_shard(shard, *args, **kwargs)
            return {name: plain(leaf) for name, leaf in work.batch.items()}, work.packing

        return timed(call)

    def write(self, shard: KVBatchMeta, field: str, values: Any) -> bool:
        """Whether ``write_back`` wrote."""
        return self.write_back(shard, field, values) is not None

    def break_get(self, fault: str) -> None:
        """Make later reads ``raise``, be ``interrupt``ed, or ``hang`` until ``let_go``."""
        self.fault = fault

    def until_reading(self) -> bool:
        """Wait for a read to begin."""
        return self.reading.wait(SOON)

    def let_go(self) -> None:
        """End the hanging."""
        self.release.set()

    def count_reads(self) -> int:
        """Reads begun since ``join``."""
        return self.reads

    def pid(self) -> int:
        """This rank's process."""
        return os.getpid()

    def leave(self) -> None:
        """Leave the run."""
        self.release.set()
        self.detach_plane()
        del self.replica
        torch.distributed.destroy_process_group()


def plain(leaf: Any) -> Any:
    """A column as comparable values: rows of dtype, shape and bytes, or objects."""
    if not isinstance(leaf, torch.Tensor):
        return [str(value) for value in leaf.tolist()]
    layout = "jagged" if leaf.is_nested else tuple(leaf.shape)
    rows = [row.contiguous().view(-1).view(torch.uint8) for row in rows_of(leaf)]
    shapes = [tuple(row.shape) for row in rows_of(leaf)]
    return layout, leaf.dtype, shapes, [bytes(row.tolist()) for row in rows]


def timed(call: Callable[[], Any]) -> CallResult:
    start = time.monotonic()
    value, error, text = None, None, ""
    try:
        value = call()
    except BaseException as raised:  # noqa: BLE001 - the test judges what was raised
        error, text = type(raised), str(raised)
    return CallResult(value, error, text, time.monotonic() - start)
