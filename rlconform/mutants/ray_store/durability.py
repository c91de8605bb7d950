"""Defects that show when a process is killed or stopped, when the plane is full, or under load."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import CapacityExceeded, DataPlaneError, KVBatchMeta, PlaneUnavailable
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, durability_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names

#: Seconds that a remote store takes to receive a put; most of a put is in them.
SENDING_S = 0.02


class ReservingController(Controller):
    """Keeps the ids that a put has reserved until its commit."""

    _reserved = State(set[tuple[str, str]])

    async def reserve(self, partition_id: str, sample_ids: Ids) -> Any:
        """Reserve ids for a put; refuse ids that another put has reserved."""
        wanted = {(partition_id, sample_id) for sample_id in sample_ids}
        if wanted & self._reserved:
            return Refusal(DataPlaneError("another put is writing these rows"))
        self._reserved.update(wanted)
        return None

    async def commit(self, put: StoredPut, *args: Any) -> Any:
        done = await super().commit(put, *args)
        self._reserved.difference_update((put.partition_id, i) for i in put.sample_ids)
        return done


@durability_mutant("FAULT-01", evidence="another put is writing these rows", may_fail="FAULT-05")
class PutReservationNeverExpires(ControllerClient):
    """Reserves the ids of a put before its bytes are sent, and frees them at the commit only.

    The ids of a producer that dies in between can never be put again (MC-01).
    """

    controller_class = ReservingController

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        self._connection.call("reserve", partition_id, sample_ids)
        time.sleep(SENDING_S)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@durability_mutant("FAULT-02", evidence="wrong-row", may_fail="FAULT-03 FAULT-05 FAULT-06")
class GetZerosFromDeadStorage(RayStoreClient):
    """Answers a read with empty rows when the process that holds them is dead (TQ-16)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except PlaneUnavailable:
            rows = torch.zeros(len(sample_ids), 64, dtype=torch.uint8)
            return TensorDict(dict.fromkeys(select_fields, rows), batch_size=[len(sample_ids)])


@durability_mutant("FAULT-03", evidence="stale-read", may_fail="FAULT-02 FAULT-05 FAULT-06")
class PutSucceedsWithoutController(RayStoreClient):
    """Reports success for a put whose rows are stored, but not in the index of a dead controller.

    The package's own put did so in TransferQueue (TQ-03).
    """

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except PlaneUnavailable:
            return KVBatchMeta(partition_id, None, list(sample_ids))


@durability_mutant("FAULT-04", evidence="lost")
class ClaimsAheadOfDemand(RayStoreClient):
    """Claims four times what was asked for, and keeps the rest in the process for later claims.

    A consumer that dies takes along rows that it was never given.
    """

    AHEAD: ClassVar[int] = 4

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ahead: dict[tuple[str, str, tuple[str, ...]], KVBatchMeta] = {}

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
        key = (partition_id, task_name, tuple(required_fields))
        kept = self._ahead.pop(key, None)
        if kept is None:
            rows = batch_size if blocking else batch_size * self.AHEAD
            kept = super().claim_meta(
                partition_id, task_name, required_fields, rows, dp_rank, blocking, timeout_s
            )
        if kept.size > batch_size:
            self._ahead[key] = kept.subset(range(batch_size, kept.size))
            return kept.subset(range(batch_size))
        return kept


@durability_mutant("FAULT-05", evidence="lost", may_fail="FAULT-02 FAULT-03 FAULT-06")
class LateClaimAskedAgain(RayStoreClient):
    """Throws an answer that took over two seconds away, and claims again.

    The rows of the first answer stay claimed, and nobody has them.
    """

    PATIENCE_S: ClassVar[float] = 2.0

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        start = time.monotonic()
        meta = super().claim_meta(*args, **kwargs)
        if time.monotonic() - start > self.PATIENCE_S and not kwargs.get("blocking", True):
            return super().claim_meta(*args, **kwargs)
        return meta


@durability_mutant("LOAD-01", evidence="lost")
class LosesEvery500thRow(RayStoreClient):
    """Drops a row of a claim at the end of each page of 500 claimed rows."""

    PAGE: ClassVar[int] = 500

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._claimed = 0

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        page = self._claimed // self.PAGE
        self._claimed += meta.size
        return meta.subset(range(1, meta.size)) if self._claimed // self.PAGE > page else meta


@durability_mutant("LOAD-02", evidence="UnknownSample", may_fail="LOAD-03")
class FullPlaneDropsOldest(RayStoreClient):
    """Makes room for a put in a full plane by dropping the oldest rows (MC-14)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._order: dict[tuple[str, str], None] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        while True:
            try:
                receipt = super().put_samples(sample_ids, partition_id, fields, tags)
            except CapacityExceeded:
                if not self._order:
                    raise
                partition, oldest = next(iter(self._order))
                del self._order[partition, oldest]
                self.clear_samples([oldest], partition)
            else:
                self._order |= {(partition_id, sample_id): None for sample_id in sample_ids}
                return receipt


@durability_mutant("LOAD-03", evidence="a claim to cost about the same")
class ClaimSearchesHistory(RayStoreClient):
    """Counts the rows ever claimed whose id has the letters of a claimed one, in any order."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._history: list[str] = []
        self._alike = 0

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        for letters in map(sorted, meta.sample_ids):
            self._alike += sum(letters == sorted(known) for known in self._history)
        self._history += meta.sample_ids
        return meta
