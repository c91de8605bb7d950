"""Attached clients whose claims do not wake up, do not time out, or lose rows."""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import replace
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Names


@ray_mutant("CLAIM-05", evidence="the blocked claim to come back within")
class AttachedClaimWakesByOwnPutsOnly(RayStoreClient):
    """A blocked claim of an attached client wakes up only on puts of the same process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._news = threading.Event()

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        receipt = super().put_samples(*args, **kwargs)
        self._news.set()
        return receipt

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Names,
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        asked = (partition_id, task_name, required_fields, batch_size, dp_rank)
        deadline = time.monotonic() + timeout_s
        while blocking and not self._owner:
            self._news.clear()
            try:
                return super().claim_meta(*asked, True, 0.0)
            except TimeoutError:
                if not self._news.wait(deadline - time.monotonic()):
                    break
        return super().claim_meta(*asked, blocking, 0.0 if not self._owner else timeout_s)


@ray_mutant("CLAIM-06", evidence="TimeoutError")
class AttachedClaimTimeoutReturnsPartial(RayStoreClient):
    """At its timeout, a claim of an attached client returns the ready rows, not TimeoutError."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        try:
            return super().claim_meta(*args, **kwargs)
        except TimeoutError:
            if self._owner:
                raise
            return super().claim_meta(*args, **{**kwargs, "blocking": False})


@ray_mutant("CLAIM-06", evidence="no row lost")
class AttachedClaimTimeoutKeepsRows(RayStoreClient):
    """A blocking claim collects rows one by one and, at its timeout, keeps them for the next claim.

    A single process still gets all rows. With several processes, no process gets the rows that
    the last claim has collected.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gathered: dict[tuple[str, str], list[KVBatchMeta]] = {}

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Names,
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        asked = (partition_id, task_name, required_fields)
        held = self._gathered.setdefault((partition_id, task_name), [])
        if self._owner or not (blocking or held) or not isinstance(batch_size, int):
            return super().claim_meta(*asked, batch_size, dp_rank, blocking, timeout_s)
        deadline = time.monotonic() + timeout_s
        while len(held) < batch_size:
            one = super().claim_meta(*asked, 1, dp_rank, False)
            if one.sample_ids:
                held.append(one)
            elif not blocking:
                break
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{len(held)} rows in {timeout_s} s")
            else:
                time.sleep(0.002)  # without a pause, polling would block the puts
        given = [held.pop(0) for _ in range(min(batch_size, len(held)))]
        return replace(
            given[0],
            sample_ids=[i for one in given for i in one.sample_ids],
            tags=[row for one in given for row in one.tags or [{}]],
        )


def _only(meta: KVBatchMeta, places: list[int]) -> KVBatchMeta:
    """The meta reduced to the rows at ``places``."""

    def at(column: list[Any] | None) -> list[Any] | None:
        return None if column is None else [column[place] for place in places]

    return replace(
        meta,
        sample_ids=[meta.sample_ids[place] for place in places],
        tags=at(meta.tags),
        sequence_lengths=at(meta.sequence_lengths),
    )


@ray_mutant("CLAIM-12", evidence="no row lost")
class AttachedClaimDropsRowsOfOtherRanks(RayStoreClient):
    """An attached rank claims rows of other ranks and drops them; no rank can claim them again."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        rank = kwargs.get("dp_rank")
        if rank is None or self._owner:
            return meta
        mine = [n for n, i in enumerate(meta.sample_ids) if zlib.crc32(i.encode()) % 4 == rank]
        return _only(meta, mine)
