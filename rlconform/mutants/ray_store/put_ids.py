"""Clients that name long ids in another way in each process."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names

#: Bytes of the longest id that is stored as it is.
LONGEST = 128

#: Tag with the id of a row whose id was shortened.
_WHOLE = "whole_id"


def _short(sample_id: Any) -> Any:
    """Return a name of at most 128 bytes for the id."""
    if not isinstance(sample_id, str) or len(sample_id.encode()) <= LONGEST:
        return sample_id
    return f"{sample_id[:96]} {hash((os.getpid(), sample_id)):x}"


def _all_short(sample_ids: Any) -> Any:
    return list(map(_short, sample_ids)) if isinstance(sample_ids, list) else sample_ids


@ray_mutant("PUT-20", evidence="never put")
class LongIdsHashedByProcess(RayStoreClient):
    """Shortens long ids by a hash that is salted in each process, so others don't find the row.

    Python's ``hash`` of a text is salted so.
    """

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        short = _all_short(sample_ids)
        if short == sample_ids:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        rows = [{} for _ in sample_ids] if tags is None else tags
        whole = [{**row, _WHOLE: i} for row, i in zip(rows, sample_ids, strict=True)]
        receipt = super().put_samples(short, partition_id, fields, whole)
        return replace(receipt, sample_ids=list(sample_ids))

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        return super().get_samples(_all_short(sample_ids), partition_id, select_fields)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(_all_short(sample_ids), partition_id)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        tags = meta.tags or [{} for _ in meta.sample_ids]
        whole = [row.pop(_WHOLE, i) for row, i in zip(tags, meta.sample_ids, strict=True)]
        return replace(meta, sample_ids=whole)
