"""Clients that return wrong lengths in metas, or lose objects between processes."""

from __future__ import annotations

from dataclasses import replace

from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import with_objects
from rlconform.mutants.ray_store.mutant import ray_call_mutant
from rlconform.mutants.ray_store.race_helpers import KnowsOwnRows


@ray_call_mutant(
    RayStoreClient.claim_meta, "FLOW-01", evidence="the lengths of", may_fail="PAR-01 PAR-02"
)
def ProcessesClaimLengthsSortedById(claim: MethodCall) -> KVBatchMeta:
    """Returns the ids of a claim in put order, but the lengths in the order of the sorted ids."""
    meta: KVBatchMeta = claim()
    if not meta.sequence_lengths:
        return meta
    by_id = dict(zip(meta.sample_ids, meta.sequence_lengths, strict=True))
    return replace(meta, sequence_lengths=[by_id[sample_id] for sample_id in sorted(by_id)])


@ray_call_mutant(
    RayStoreClient.get_samples, "FLOW-05 PUT-21 WIRE-06", evidence="message log", plane=KnowsOwnRows
)
def AttachedGetObjectsLost(read: MethodCall) -> TensorDict:
    """Keeps objects in the process that put them: another process reads None instead (NR-11)."""
    batch: TensorDict = read()
    if read.plane.own.issuperset(read.sample_ids):
        return batch
    return with_objects(batch, lambda values: [None] * len(values))
