"""A second message between the steps of a racy call, and a controller's tests of a put."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import ray
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


class AlteredForeignRows(RayStoreClient):
    """A client that keeps what it put, and gets what others put by another way."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._own: set[str] = set()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._own.update(sample_ids)
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and not self._own.issuperset(sample_ids):
                batch.set(name, self.arrived(leaf))
        return batch

    def arrived(self, leaf: Tensor) -> Tensor:
        """A column as it comes from another process."""
        raise NotImplementedError


#: Seconds that the second step takes to be sent off, at the least, on one host.
GAP_S = 0.002


async def second_message(seconds: float = GAP_S) -> None:
    """Come to the second step: on a busy machine its message takes as long as any other."""
    await asyncio.sleep(seconds)
    await ray.get_runtime_context().current_actor.ready.remote()
