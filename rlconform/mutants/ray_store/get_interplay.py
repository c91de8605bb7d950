"""Reads that return what the process remembers, which another process has changed since."""

from __future__ import annotations

import json
from typing import Any

from ray.experimental import internal_kv
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, UnknownField
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import interplay_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, rows_of, stack_or_nest

#: Bytes of a column above which a process maps a file.
_MAPPED_BYTES = 1 << 20

#: Partition, ids and field of a read.
Column = tuple[str, tuple[str, ...], str]


@interplay_mutant("GET-10", evidence="row")
class ClaimReadsRowsAhead(RayStoreClient):
    """Reads a claim's rows ahead, and answers ``get_data`` of the claim with them.

    Only a put or a clear of the same process drops them.
    """

    _ahead = State(dict[tuple[str, tuple[str, ...]], TensorDict])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sample_ids:
            ahead = self.get_samples(meta.sample_ids, meta.partition_id, meta.fields or [])
            self._ahead[meta.partition_id, tuple(meta.sample_ids)] = ahead
        return meta

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        ahead = self._ahead.get((meta.partition_id, tuple(meta.sample_ids)))
        if ahead is not None and select_fields is None:
            return ahead.clone()
        return super().get_data(meta, select_fields)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._ahead.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._ahead.clear()
        super().clear_samples(*args, **kwargs)


@interplay_mutant("GET-10", evidence="not produced", seed=76)
class UnproducedFieldRemembered(RayStoreClient):
    """Remembers that a partition lacks a field, until the same process puts the field."""

    _lacking = State(set[tuple[str, str]])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        for name in select_fields:
            if (partition_id, name) in self._lacking:
                raise UnknownField(f"field {name!r} is not produced for every row")
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except UnknownField:
            if len(select_fields) == 1:
                self._lacking.add((partition_id, select_fields[0]))
            raise

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._lacking -= {(partition_id, name) for name in receipt.fields or []}
        return receipt


@interplay_mutant("GET-10", evidence="row", seed=4)
class ObjectsFetchedByMetaKept(RayStoreClient):
    """Keeps the object columns that ``get_data`` has read, until the process clears rows."""

    _kept = State(dict[Column, Any])

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        batch = super().get_data(meta, select_fields)
        for name in list(map(str, batch.keys())):
            if is_object_column(batch.get(name)):
                key = meta.partition_id, tuple(meta.sample_ids), name
                batch.set(name, self._kept.setdefault(key, batch.get(name)))
        return batch

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._kept.clear()
        super().clear_samples(*args, **kwargs)


@interplay_mutant("GET-10", evidence="row")
class LargeColumnStaysMapped(RayStoreClient):
    """Keeps a large column mapped that it has read, and does not map its file again.

    Only the process that writes the column anew, or clears rows, drops the mapping.
    """

    _mapped = State(dict[Column, Any])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in list(map(str, batch.keys())):
            leaf, key = batch.get(name), (partition_id, tuple(sample_ids), name)
            if not is_object_column(leaf) and _bytes_of(leaf) >= _MAPPED_BYTES:
                batch.set(name, self._mapped.setdefault(key, leaf).clone())
        return batch

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for key in [key for key in self._mapped if key[0] == partition_id]:
            if key[2] in (receipt.fields or []):
                del self._mapped[key]
        return receipt

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._mapped.clear()
        super().clear_samples(*args, **kwargs)


def _bytes_of(leaf: Any) -> int:
    return sum(row.numel() * row.element_size() for row in rows_of(leaf))


@interplay_mutant("GET-01", evidence="row", may_fail="GET-10", seed=3)
class ReaderKeepsWritersOrder(RayStoreClient):
    """Looks up once in which order a batch was put, and reads by these positions ever after.

    Another process that writes the batch anew in another order leaves the positions wrong. A put or
    a clear of the same process drops them.
    """

    _order = State(dict[str, list[str]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *a: Any, **k: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *a, **k)
        self._order.clear()
        if receipt.fields and isinstance(sample_ids, list):
            key = self._key(partition_id, sample_ids)
            internal_kv._internal_kv_put(key, json.dumps(sample_ids))
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        key = self._key(partition_id, sample_ids)
        put = json.loads(internal_kv._internal_kv_get(key) or "null")
        if put is None or len(put) != len(sample_ids):
            return batch
        known = self._order.setdefault(key, put)
        taken = [put[known.index(i)] for i in sample_ids]
        return _rearranged(batch, [sample_ids.index(i) for i in taken])

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._order.clear()
        super().clear_samples(*args, **kwargs)

    def _key(self, partition_id: str, sample_ids: Ids) -> str:
        plane = self._connection._controller._actor_id.hex()
        return f"{plane} order {json.dumps([partition_id, *sorted(map(str, sample_ids))])}"


def _rearranged(batch: TensorDict, rows: list[int]) -> TensorDict:
    if rows == sorted(rows):
        return batch
    for name in list(map(str, batch.keys())):
        if not is_object_column(batch.get(name)):
            column = rows_of(batch.get(name))
            batch.set(name, stack_or_nest([column[n] for n in rows]))
    return batch
