"""Registrations whose rows or dtypes are of the one before, or whose new tasks lack rows."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.helpers import mark, rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_call_mutant


@ray_call_mutant(RayStoreClient.put_samples, "REG-03", evidence="tags of step 1")
def AttachedStaleRowReused(put: MethodCall) -> KVBatchMeta:
    """An attached client sends an id's tags once, even after the partition is registered again."""
    rows = {(put.partition_id, i) for i in put.sample_ids if isinstance(i, str)}
    known = put.notes.setdefault("rows", set())
    stale = rows and rows <= known and not put.plane._owner and put.fields is not None
    receipt: KVBatchMeta = put(tags=None) if stale else put()
    known |= rows
    return receipt


@ray_call_mutant(RayStoreClient.put_samples, "REG-03", evidence="was put as")
def AttachedDtypesKeptOverRegistration(put: MethodCall) -> KVBatchMeta:
    """An attached client refuses new rows of another dtype than it put into the field before.

    Clients that keep the schema of a partition, to refuse such rows without asking the plane, do
    so: they miss that another process clears the partition and registers it again.
    """
    columns = {} if put.fields is None or put.plane._owner else dict(put.fields.items())
    known, rows = put.notes.setdefault(put.partition_id, ({}, set()))
    for name, leaf in columns.items():
        new = isinstance(leaf, Tensor) and not rows.issuperset(put.sample_ids)
        if new and known.get(name, leaf.dtype) is not leaf.dtype:
            raise ValueError(f"{name!r} was put as {known[name]}")
    receipt: KVBatchMeta = put()
    known.update((n, leaf.dtype) for n, leaf in columns.items() if isinstance(leaf, Tensor))
    rows.update(put.sample_ids)
    return receipt


@controller_mutant(
    "CLAIM-02",
    chance=False,
    evidence="added since",
    may_fail="STAT-01 STAT-02 STAT-03 TAG-01 REG-08 CLAIM-03",
)
class AddedTaskLacksClaimedRows(Controller):
    """Takes a row off its log once all tasks have claimed it; a task added later lacks it."""

    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> Any:
        known = self._index._partitions.get(partition_id)
        before = set() if known is None else set(known._tasks)
        answer = await super().register(partition_id, tasks, group_size)
        consumed = [
            row for row in rows_in(self._index, partition_id, None) if row.claimed_by >= before
        ]
        for task in {*tasks} - before if before else ():
            mark(self._index.partition(partition_id), consumed, task)
        return answer
