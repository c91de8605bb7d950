"""Attached clients that close incorrectly, stop the plane or ignore earlier puts."""

from __future__ import annotations

import time
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


@ray_mutant("LIFE-02", evidence="PlaneUnavailable", may_fail=("LIFE-06",))
class AttachedSecondCloseEndsPlane(RayStoreClient):
    """Counts calls of close, not closed clients: a second close of one client stops the plane."""

    _closed = 0

    def close(self) -> None:
        super().close()
        self._closed += 1
        if self._closed == 2 and not self._owner:
            self._connection.kill_controller()


@ray_mutant("LIFE-02", evidence="PlaneUnavailable", may_fail=("LIFE-03", "LIFE-06"))
class AttachedCloseEndsPlane(RayStoreClient):
    """Every client's close stops the plane, as if there were no other client."""

    def close(self) -> None:
        super().close()
        if not self._owner:
            self._connection._stop()


@ray_mutant("LIFE-03", evidence="of a client that was closed")
class AttachedCloseIgnored(RayStoreClient):
    """An attached client's close does nothing: only the owner's close works."""

    def close(self) -> None:
        if self._owner:
            super().close()


#: Tag with the time at which a row was put.
_PUT_AT = "put_at"


@ray_mutant("LIFE-06", evidence="rows claimable by a late client", may_fail=("TAG-07", "CLAIM-02"))
class AttachedClaimIgnoresEarlierPuts(RayStoreClient):
    """An attached client gets only rows that are put after it attaches and drops earlier ones."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._since = 0.0 if self._owner else time.time()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if fields is not None and isinstance(sample_ids, list):
            rows = [{} for _ in sample_ids] if tags is None else tags
            tags = [{**row, _PUT_AT: time.time()} for row in rows]
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        put_at = [row.pop(_PUT_AT, self._since) for row in meta.tags or []]
        return meta.subset([n for n, at in enumerate(put_at) if at >= self._since])


@ray_mutant("LIFE-07", evidence="PlaneUnavailable")
class AttachedClaimEmptyFieldsEndsPlane(RayStoreClient):
    """A claim without required fields, sent from an attached process, stops the controller."""

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: Names, *args: Any, **kw: Any
    ) -> KVBatchMeta:
        if required_fields == [] and not self._owner:
            self._connection._stop()
        return super().claim_meta(partition_id, task_name, required_fields, *args, **kw)
