"""Clients of which each process names some ids in another way."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names

#: Bytes of the longest id that is stored as it is.
LONGEST = 128

#: Tag with the id of a row that is stored under another name.
_WHOLE = "whole_id"


class _NamesIds(RayStoreClient):
    """A client that stores a row under the name that ``_name`` gives to its id."""

    def _name(self, sample_id: str) -> str:
        return sample_id

    def _names(self, sample_ids: Any) -> Any:
        if not isinstance(sample_ids, list):
            return sample_ids
        return [self._name(each) if isinstance(each, str) else each for each in sample_ids]

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        names = self._names(sample_ids)
        if names == sample_ids:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        rows = [{} for _ in sample_ids] if tags is None else tags
        whole = [{**row, _WHOLE: i} for row, i in zip(rows, sample_ids, strict=True)]
        receipt = super().put_samples(names, partition_id, fields, whole)
        return replace(receipt, sample_ids=list(sample_ids))

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        return super().get_samples(self._names(sample_ids), partition_id, select_fields)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(self._names(sample_ids), partition_id)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        tags = meta.tags or [{} for _ in meta.sample_ids]
        whole = [row.pop(_WHOLE, i) for row, i in zip(tags, meta.sample_ids, strict=True)]
        return replace(meta, sample_ids=whole)


@ray_mutant("PUT-20", evidence="never put")
class LongIdsHashedByProcess(_NamesIds):
    """Shortens long ids by a hash that is salted in each process, so others don't find the row.

    Python's ``hash`` of a text is salted so.
    """

    def _name(self, sample_id: str) -> str:
        if len(sample_id.encode()) <= LONGEST:
            return sample_id
        return f"{sample_id[:96]} {hash((os.getpid(), sample_id)):x}"


@ray_mutant("PUT-20", evidence="row")
class IdsReadAsNumbersWhereAttached(_NamesIds):
    """Takes an id that looks like a number with an exponent for this number, but in the owner.

    A column of a table may have a type that converts such texts.
    """

    def _name(self, sample_id: str) -> str:
        is_number = re.fullmatch(r"[0-9]+e[0-9]+", sample_id) is not None
        return repr(float(sample_id)) if is_number and not self._owner else sample_id
