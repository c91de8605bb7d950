"""Clients that trust what they know of a column or a row after another process changed it."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


@ray_mutant("PUT-13", evidence="row", may_fail="PUT-01 REG-03 REG-04 GET-10 CLEAR-04")
class DtypesKnownByWidth(RayStoreClient):
    """Decodes a float column by the dtype that it had before, if both have one width."""

    _dtypes = State(dict[tuple[str, str], torch.dtype])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in map(str, batch.keys()):
            leaf = batch.get(name)
            if not isinstance(leaf, torch.Tensor) or leaf.is_nested or not leaf.is_floating_point():
                continue
            known = self._dtypes.setdefault((partition_id, name), leaf.dtype)
            if known.itemsize == leaf.dtype.itemsize:
                batch.set(name, leaf.view(known))
            else:
                self._dtypes[partition_id, name] = leaf.dtype
        return batch


#: Bytes of a row that a client maps.
MAPPED = 1 << 20


@ray_mutant("GET-10", evidence="row", may_fail="PUT-13 REG-03 REG-04 CLEAR-04 GET-06")
class LargeRowsStayMapped(RayStoreClient):
    """Keeps rows of 1 MiB that it has read until it writes or clears them itself."""

    _mapped = State(dict[tuple[str, str, str], torch.Tensor])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        self._forget(partition_id, sample_ids)
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        self._forget(partition_id, sample_ids)
        super().clear_samples(sample_ids, partition_id)

    def _forget(self, partition_id: str, sample_ids: Any) -> None:
        for key in list(self._mapped):
            if key[0] == partition_id and (sample_ids is None or key[1] in sample_ids):
                del self._mapped[key]

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in map(str, batch.keys()):
            leaf = batch.get(name)
            if not isinstance(leaf, torch.Tensor) or leaf.is_nested or leaf[:1].nbytes < MAPPED:
                continue
            rows = [
                self._mapped.setdefault((partition_id, i, name), row.clone())
                for i, row in zip(sample_ids, leaf, strict=True)
            ]
            same = all(row.shape == leaf.shape[1:] and row.dtype == leaf.dtype for row in rows)
            batch.set(name, torch.stack(rows) if same else leaf)
        return batch
