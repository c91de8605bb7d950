"""Attached clients whose claims do not wake up, do not time out, or lose rows."""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import replace
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.ray_store.mutant import ray_call_mutant


class NoticesOwnPuts(RayStoreClient):
    """A client without a defect whose own puts set an event."""

    news = State(threading.Event)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        receipt = super().put_samples(*args, **kwargs)
        self.news.set()
        return receipt


@ray_call_mutant(
    RayStoreClient.claim_meta,
    "CLAIM-05",
    evidence="the blocked claim to come back within",
    plane=NoticesOwnPuts,
)
def AttachedClaimWakesByOwnPutsOnly(claim: MethodCall) -> KVBatchMeta:
    """Wakes a blocked claim of an attached client only on puts of the same process."""
    if claim.plane._owner:
        return claim()
    news, deadline = claim.plane.news, time.monotonic() + claim.timeout_s
    while claim.blocking:
        news.clear()
        try:
            return claim(timeout_s=0.0)
        except TimeoutError:
            if not news.wait(deadline - time.monotonic()):
                break
    return claim(timeout_s=0.0)


@ray_call_mutant(RayStoreClient.claim_meta, "CLAIM-06", evidence="TimeoutError")
def AttachedClaimTimeoutReturnsPartial(claim: MethodCall) -> KVBatchMeta:
    """Returns the ready rows, not an error, when a claim of an attached client times out."""
    try:
        return claim()
    except TimeoutError:
        if claim.plane._owner:
            raise
        return claim(blocking=False)


@ray_call_mutant(RayStoreClient.claim_meta, "CLAIM-06", evidence="no row lost")
def AttachedClaimTimeoutKeepsRows(claim: MethodCall) -> KVBatchMeta:
    """Keeps the rows that a blocking claim has collected at its timeout for the next claim.

    A single process still gets all rows. With several processes, no process gets the rows that
    the last claim has kept.
    """
    size, blocking = claim.batch_size, claim.blocking
    held = claim.notes.setdefault((claim.partition_id, claim.task_name), [])
    if claim.plane._owner or not (blocking or held) or not isinstance(size, int):
        return claim()
    deadline = time.monotonic() + claim.timeout_s
    while len(held) < size:
        one = claim(batch_size=1, blocking=False)
        if one.sample_ids:
            held.append(one)
        elif not blocking:
            break
        elif time.monotonic() > deadline:
            raise TimeoutError(f"{len(held)} rows in {claim.timeout_s} s")
        else:
            time.sleep(0.002)  # without a pause, polling would block the puts
    given = [held.pop(0) for _ in range(min(size, len(held)))]
    return replace(
        given[0],
        sample_ids=[i for one in given for i in one.sample_ids],
        tags=[row for one in given for row in one.tags or [{}]],
    )


@ray_call_mutant(RayStoreClient.claim_meta, "CLAIM-12", evidence="no row lost")
def AttachedClaimDropsRowsOfOtherRanks(claim: MethodCall) -> KVBatchMeta:
    """An attached rank claims rows of other ranks and drops them; no rank can claim them again."""
    meta: KVBatchMeta = claim()
    if claim.dp_rank is None or claim.plane._owner:
        return meta
    ranks = [zlib.crc32(sample_id.encode()) % 4 for sample_id in meta.sample_ids]
    return meta.subset([n for n, rank in enumerate(ranks) if rank == claim.dp_rank])


@ray_call_mutant(
    RayStoreClient.claim_meta,
    "CLAIM-06",
    evidence="the blocked claim to come back",
    plane=NoticesOwnPuts,
)
def ClaimTimeoutRestartsOnRows(claim: MethodCall) -> KVBatchMeta:
    """Waits for ``timeout_s`` again if rows of other processes arrived, as an idle timeout does."""
    rows, timed_out = -1, TimeoutError()
    while rows < (rows := len(claim.plane.list_sample_ids(claim.partition_id))):
        claim.plane.news.clear()
        try:
            return claim()
        except TimeoutError as error:
            timed_out = error
        if claim.plane.news.is_set():
            break
    raise timed_out
