"""Clients that return wrong lengths in metas, or lose objects between processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, Names
from rlconform.wire import is_object_column, object_column


@ray_mutant("FLOW-01", evidence="the lengths of", may_fail=("PAR-01", "PAR-02"))
class ProcessesClaimLengthsSortedById(RayStoreClient):
    """Returns the ids of a claim in put order, but the lengths in the order of the sorted ids."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        by_id = dict(zip(meta.sample_ids, meta.sequence_lengths or [], strict=False))
        lengths = [by_id[sample_id] for sample_id in sorted(by_id)]
        return replace(meta, sequence_lengths=lengths if by_id else meta.sequence_lengths)


@ray_mutant("FLOW-05", "PUT-21", "WIRE-06", evidence="message log")
class AttachedGetObjectsLost(RayStoreClient):
    """Keeps objects in the process that put them: another process reads None instead (NR-11)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._own: set[str] = set()

    def put_samples(self, sample_ids: Ids, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().put_samples(sample_ids, *args, **kwargs)
        self._own.update(sample_ids)
        return meta

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            if is_object_column(leaf) and not self._own.issuperset(sample_ids):
                batch.set(name, object_column(None for _ in sample_ids))
        return batch
