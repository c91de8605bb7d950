"""Shared parts of the mutants: a delay between two steps, and a client that alters columns."""

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
    """A client that alters the columns it reads, unless it has put all the rows."""

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
        """Return the altered column."""
        raise NotImplementedError


#: Minimum delay before the second step, s.
GAP_S = 0.002


async def second_message(seconds: float = GAP_S) -> None:
    """Wait for ``seconds`` and one message to this actor, which takes longer on a busy machine."""
    await asyncio.sleep(seconds)
    await ray.get_runtime_context().current_actor.ready.remote()
