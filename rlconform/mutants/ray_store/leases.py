"""Rows and claims that a process loses with the time, while it is silent or once it has left."""

from __future__ import annotations

import time
from typing import Any

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import give_back, rows_in, take_back
from rlconform.mutants.ray_store.mutant import ControllerClient, controller_mutant, ray_mutant
from rlconform.mutants.ray_store.waiting_processes import ClaimsAsProcess
from rlconform.mutants.types import Ids, Names

#: Seconds without a call after which a process loses what it has claimed.
LEASE_S = 25.0

#: A process, its partition, its task and the rows that it has claimed.
Lease = tuple[str, str, str, list[Any]]


class _Leasing(Controller):
    _heard = State(dict[str, float])
    _leases = State(list[Lease])

    async def renew(self, process: str) -> None:
        now = self._heard[process] = time.monotonic()
        for lease in list(self._leases):
            holder, partition_id, task, rows = lease
            if now - self._heard[holder] > LEASE_S:
                self._leases.remove(lease)
                known = rows_in(self._index, partition_id, [row.sample_id for row in rows])
                held = [row for row in known if row in rows and task in row.claimed_by]
                give_back(self._index.partition(partition_id), held, task)
                self._wake(partition_id)

    async def lease(self, process: str, partition_id: str, task: str, ids: list[str]) -> None:
        self._leases.append((process, partition_id, task, rows_in(self._index, partition_id, ids)))


class _RenewsByCalls(ControllerClient):
    controller_class = _Leasing

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        call = self._connection.call_waiting

        def renewing(method: str, wait_s: float, *args: Any) -> Any:
            call("renew", 0.0, process_id())
            answer = call(method, wait_s, *args)
            if method == "claim" and answer and answer[0]:
                call("lease", 0.0, process_id(), args[0], args[1], answer[0])
            return answer

        self._connection.call_waiting = renewing


@ray_mutant("CLAIM-08", evidence="rows claimed once more", may_fail="CLAIM-02 STAT-01 STAT-02")
class ClaimLeasedByClock(_RenewsByCalls):
    """Takes claimed rows back from a process that has called nothing for 25 seconds."""


class _LeasesLastClaim(_Leasing):
    async def renew(self, process: str) -> None:
        self._leases[:] = [lease for lease in self._leases if lease[0] != process]
        await super().renew(process)


@ray_mutant("CLAIM-08", evidence="rows claimed once more", may_fail="CLAIM-02 STAT-01 STAT-02")
class LastClaimLeasedByClock(_RenewsByCalls):
    """Takes back the last claim of a process that has called nothing since, for 25 seconds."""

    controller_class = _LeasesLastClaim


@controller_mutant("CLAIM-08", evidence="not to be readable", chance=False, may_fail="CLEAR-03")
class RowsOfSilentWriterTakenOver(Controller):
    """Gives the rows of a process that has put none for 25 seconds to the next that puts some."""

    _wrote = State(dict[str, float])

    async def commit(self, put: StoredPut, columns: Any, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        now = self._wrote[put.writer] = time.monotonic()
        partition = self._index.partition(put.partition_id)
        for row in rows_in(self._index, put.partition_id, None):
            if now - self._wrote[row.writer] > LEASE_S:
                partition._change_writer(row, put.writer)
        return due


class _KeepsClaimsOfMembers(Controller):
    _members = State(dict[tuple[str, str], set[str]])  # processes that have claimed, by task
    _left = State(dict[tuple[str, str], float])  # when the last of them had closed

    async def claim_of(self, process: str, *claim: Any) -> Any:
        answer = await self.claim(*claim)
        self._members.setdefault((claim[0], claim[1]), set()).add(process)
        self._left.pop((claim[0], claim[1]), None)
        return answer

    async def leave(self, process: str) -> None:
        for key, members in self._members.items():
            members.discard(process)
            if not members:
                self._left.setdefault(key, time.monotonic())

    async def join(self) -> None:
        for (partition_id, task), left in list(self._left.items()):
            if not self._members[partition_id, task] and time.monotonic() - left > LEASE_S:
                rows = rows_in(self._index, partition_id, None)
                held = [row for row in rows if task in row.claimed_by]
                give_back(self._index.partition(partition_id), held, task)
                self._wake(partition_id)


@ray_mutant("CLAIM-08", evidence="whose only process had left long before")
class ClaimsOfVacantTaskForgotten(ClaimsAsProcess):
    """Forgets what a task has claimed if all of its processes left 25 seconds before one attaches.

    Kafka drops the offsets of a group without members after some time.
    """

    controller_class = _KeepsClaimsOfMembers

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._attached = not bootstrap
        if self._attached:
            self._connection.call("join")

    def close(self) -> None:
        if self._attached:
            self._attached = False
            self._connection.call("leave", process_id())
        super().close()


#: Seconds for which a process collects the keys of rows that it has cleared.
LINGER_S = 1.5


class _RemovesByKey(Controller):
    async def remove_values(self, partition_id: str, ids: Ids) -> None:
        for row in rows_in(self._index, partition_id, ids):
            take_back(self._index.partition(partition_id), row, row.fields)


@ray_mutant("CLAIM-08", evidence="'again'", may_fail="CLEAR-04 CLEAR-07")
class ClearedKeysRemovedLater(ControllerClient):
    """Removes the values of rows that it has cleared with a call seconds later, by their ids.

    Rows that another process has put under them since lose theirs.
    """

    controller_class = _RemovesByKey
    _removals = State(dict[tuple[str, str], float])  # by partition and id: when it was cleared

    def _remove(self) -> None:
        now = time.monotonic()
        for key, since in list(self._removals.items()):
            if now - since > LINGER_S:
                del self._removals[key]
                self._connection.call("remove_values", key[0], [key[1]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *a: Any, **k: Any) -> KVBatchMeta:
        for sample_id in sample_ids:
            self._removals.pop((partition_id, sample_id), None)
        return super().put_samples(sample_ids, partition_id, *a, **k)

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        self._remove()
        return super().check_consumption_status(partition_id, task_names)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        now = time.monotonic()
        self._removals.update({(partition_id, sample_id): now for sample_id in sample_ids or ()})
