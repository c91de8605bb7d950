"""Reads that return rows cached in the reading process."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, Names


@ray_mutant("GET-10 PUT-13 PUT-22 CLEAR-01 CLEAR-07", evidence="row 0 of 'x' = row:")
class AttachedGetCached(RayStoreClient):
    """Caches the rows that it has read until the same process puts or clears.

    In the incident, writer and reader each used a separate copy; with one process the defect did
    not show (NR-61).
    """

    _read = State(dict[tuple[str, ...], TensorDict])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        key = tuple(map(str, (partition_id, *sample_ids, "", *select_fields)))
        if key not in self._read:
            self._read[key] = super().get_samples(sample_ids, partition_id, select_fields)
        return self._read[key].clone()

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._read.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._read.clear()
        super().clear_samples(*args, **kwargs)
