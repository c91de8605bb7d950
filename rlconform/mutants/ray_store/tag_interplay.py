"""Tags and lengths that a process keeps to itself, or takes from its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, Tags
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import interplay_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags


@interplay_mutant("TAG-06", evidence="sequence_lengths")
class LengthsRememberedByProcess(RayStoreClient):
    """Reports the length that the process saw first for a row; the tags beside it are right."""

    _seen = State(dict[tuple[str, str], int])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sequence_lengths is None:
            return meta
        seen = [
            self._seen.setdefault((meta.partition_id, i), n)
            for i, n in zip(meta.sample_ids, meta.sequence_lengths, strict=True)
        ]
        return replace(meta, sequence_lengths=seen)

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            if INPUT_LENGTHS in row:
                self._seen[partition_id, sample_id] = row[INPUT_LENGTHS]
        return receipt

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._seen.clear()
        super().clear_samples(*args, **kwargs)


@interplay_mutant("TAG-01", evidence="tags", may_fail="TAG-03 TAG-06 TAG-07")
class TagsOfOthersRowsKeptBack(RayStoreClient):
    """Sends tags for rows of another process together with the next put of fields, not before."""

    _own = State(set[tuple[str, str]])
    _back = State(dict[tuple[str, str], Tags])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if fields is None and isinstance(tags, list) and len(tags) == len(sample_ids):
            receipt = super().put_samples(sample_ids, partition_id, None, [{} for _ in tags])
            for sample_id, row in zip(sample_ids, tags, strict=True):
                self._stamp(partition_id, sample_id, row)
            return receipt
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._own |= {(partition_id, i) for i in sample_ids}
        for (partition, sample_id), row in self._back.items():
            super().put_samples([sample_id], partition, tags=[row])
        self._back.clear()
        return receipt

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        own = [self._back.get((meta.partition_id, i), {}) for i in meta.sample_ids]
        rows = zip(meta.tags or [], own, strict=True)
        return replace(meta, tags=[{**row, **more} for row, more in rows])

    def _stamp(self, partition_id: str, sample_id: str, row: Tags) -> None:
        if (partition_id, sample_id) in self._own:
            super().put_samples([sample_id], partition_id, tags=[row])
        else:
            self._back.setdefault((partition_id, sample_id), {}).update(row)
