"""Planes whose ``get_data`` reads other fields or rows than the meta names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownSample
from rlconform.mutants.memory.helpers import PrefetchesClaims, TracksClears, held, memory_mutant
from rlconform.mutants.types import Names


@memory_mutant(
    "GET-01", "GET-11", "PUT-21", evidence="of get_data: row 0 of 'x' =", may_fail=("GET-02",)
)
class GetDataInStoredOrder(MemoryClient):
    """Returns rows of get_data in stored order if the meta was built by a driver."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        named = getattr(meta, "sample_ids", None)
        if type(meta) is not KVBatchMeta or not named or meta.task_name:
            return super().get_data(meta, select_fields)
        lies = {sample_id: n for n, sample_id in enumerate(held(self, meta.partition_id)._rows)}
        stored = sorted(named, key=lambda sample_id: lies.get(sample_id, -1))
        return super().get_data(replace(meta, sample_ids=stored), select_fields)


@memory_mutant("GET-02", evidence="row 3 of 'x'")
class GetDataRepeatedRowsReordered(MemoryClient):
    """Repeats all rows in turn in get_data if a shard was filled up with a repeated row."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        ids = getattr(meta, "sample_ids", None) or []
        if ids and len(set(ids)) < len(ids):
            once = list(dict.fromkeys(ids))
            meta = replace(meta, sample_ids=(once * len(ids))[: len(ids)])
        return super().get_data(meta, select_fields)


@memory_mutant("GET-06", evidence="a row that was cleared")
class GetDataClearedRowsSkipped(TracksClears):
    """Silently leaves out cleared rows in get_data and returns a shorter batch."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        ids = getattr(meta, "sample_ids", None) or []
        left = [i for i in ids if (meta.partition_id, i) not in self._gone]
        return super().get_data(replace(meta, sample_ids=left) if left else meta, select_fields)


@memory_mutant("GET-06", evidence="the meta of rows cleared since")
class GetDataReturnsClearedRows(PrefetchesClaims):
    """Returns the last claimed batch from get_data even after its rows were cleared."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        try:
            return super().get_data(meta, select_fields)
        except UnknownSample:
            fetched = self.fetched(meta)
            if fetched is None:
                raise
            return fetched.clone()


@memory_mutant("GET-07", evidence="a shard without rows")
class GetDataEmptyMetaRefused(MemoryClient):
    """Raises an error in get_data for an empty shard, because it has no longest row."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        if not getattr(meta, "sample_ids", True):
            raise ValueError("a shard without rows has no longest one")
        return super().get_data(meta, select_fields)


@memory_mutant("GET-11", evidence="select_fields=['y']")
class GetDataFieldsOfMetaAdded(MemoryClient):
    """Returns the meta's fields from get_data in addition to ``select_fields``."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        named = getattr(meta, "fields", None)
        both = [*named, *select_fields] if named and select_fields else select_fields
        return super().get_data(meta, both)


@memory_mutant("GET-11", evidence="a meta that names no fields")
class GetDataWithoutFieldsReadsAll(MemoryClient):
    """Returns every field from get_data if neither the meta nor the caller names any."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        try:
            return super().get_data(meta, select_fields)
        except ValueError:
            if select_fields is not None or not meta.sample_ids:
                raise
            row = held(self, meta.partition_id)._rows[meta.sample_ids[0]]
            return super().get_data(meta, sorted(row.fields))
