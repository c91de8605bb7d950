"""An attached client that treats rows of an earlier registration as already known."""

from __future__ import annotations

from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids


@ray_mutant("REG-03", evidence="tags of step 1")
class AttachedStaleRowReused(RayStoreClient):
    """An attached client sends an id's tags once, even after the partition is registered again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: set[tuple[str, str]] = set()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        rows = {(partition_id, i) for i in sample_ids if isinstance(i, str)}
        if (
            rows
            and rows <= self._known
            and not self._owner
            and (args or kwargs.get("fields") is not None)
        ):
            kwargs["tags"], args = None, args[:1]
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        self._known |= rows
        return receipt
