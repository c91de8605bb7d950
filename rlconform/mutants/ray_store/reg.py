"""An attached client that treats rows of an earlier registration as already known."""

from __future__ import annotations

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.ray_store.mutant import ray_call_mutant


@ray_call_mutant(RayStoreClient.put_samples, "REG-03", evidence="tags of step 1")
def AttachedStaleRowReused(put: MethodCall) -> KVBatchMeta:
    """An attached client sends an id's tags once, even after the partition is registered again."""
    rows = {(put.partition_id, i) for i in put.sample_ids if isinstance(i, str)}
    known = put.notes.setdefault("rows", set())
    stale = rows and rows <= known and not put.plane._owner and put.fields is not None
    receipt: KVBatchMeta = put(tags=None) if stale else put()
    known |= rows
    return receipt
