"""Claims that wait in one process and are woken for another."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from typing import Any

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import ClientClosed, KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, controller_mutant, ray_mutant


class WakesSome(Controller):
    """A controller that looks whether a waiting claim is ready only at changes that ``concern`` it.

    ``concern`` is called with the claim's partition, task and what ``note`` returned at its start.
    """

    def note(self) -> Any:
        """Return what is known when a claim begins to wait."""

    def concern(self, _partition_id: str, _task: str, _noted: Any) -> bool:
        """Whether the newest change wakes the claim."""
        return True

    async def _wait(
        self, partition_id: str, task: str, required: Any, rows: int, deadline: float
    ) -> None:
        noted, ready = self.note(), False
        while not ready:
            changed = asyncio.get_running_loop().create_future()
            waiting = self._waiting.setdefault(partition_id, set())
            waiting.add(changed)
            try:
                await asyncio.wait_for(changed, deadline - time.monotonic())
            except TimeoutError:
                raise TimeoutError(f"{partition_id!r} has no {rows} rows for {task!r}") from None
            finally:
                waiting.discard(changed)
            partition = self._index.partition(partition_id)
            ready = self.concern(partition_id, task, noted) and partition.is_ready(
                task, required, rows
            )


class _NeedsByTask(WakesSome):
    _needs = State(dict[tuple[str, str], dict[str, list[frozenset[str]]]])

    async def claim_of(self, process: str, *claim: Any) -> Any:
        partition_id, task, names, _, wait_s = claim
        if wait_s is None:
            return await self.claim(*claim)
        needs = self._needs.setdefault((partition_id, task), {})
        needs[process] = [*needs.pop(process, []), frozenset(names)]  # it is the last one now
        try:
            return await self.claim(*claim)
        finally:
            needs[process].remove(frozenset(names))
            if not needs[process]:
                del needs[process]

    def concern(self, partition_id: str, task: str, _noted: Any) -> bool:
        newest = [*self._needs.get((partition_id, task), {}).values()] or [[]]
        partition = self._index.partition(partition_id)
        return not newest[-1] or any(partition.is_ready(task, need, 1) for need in newest[-1])


class ClaimsAsProcess(ControllerClient):
    """A client that sends its process with a waiting claim, which ``claim_of`` makes."""

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        call = self._connection.call_waiting

        def as_process(method: str, wait_s: float, *args: Any) -> Any:
            if method == "claim":
                return call("claim_of", wait_s, process_id(), *args)
            return call(method, wait_s, *args)

        self._connection.call_waiting = as_process


@ray_mutant("CLAIM-05", evidence="the blocked claim to come back within")
class WaitersShareFieldsOfTask(ClaimsAsProcess):
    """Keeps for each task one entry of what its waiting claims need: that of the newest process."""

    controller_class = _NeedsByTask


class _CountsRows(WakesSome):
    def note(self) -> Any:
        return {name: len(self._index.sample_ids(name)) for name in self._index._partitions}

    def concern(self, partition_id: str, _task: str, noted: Any) -> bool:
        return len(self._index.sample_ids(partition_id)) != noted.get(partition_id, 0)


@controller_mutant(
    "CLAIM-05", evidence="the blocked claim to come back within", chance=False, may_fail="CLAIM-07"
)
class WaiterLooksAtNumberOfRows(_CountsRows):
    """Wakes a claim if the partition has another number of rows than when it began to wait."""


#: Rows of a claim that looks at each change.
FEW = 8


class _CountsRowsForMany(_CountsRows):
    async def _wait(
        self, partition_id: str, task: str, required: Any, rows: int, deadline: float
    ) -> None:
        wait = super()._wait if rows > FEW else partial(Controller._wait, self)
        await wait(partition_id, task, required, rows, deadline)


@controller_mutant(
    "CLAIM-05", evidence="the blocked claim to come back within", chance=False, may_fail="CLAIM-07"
)
class LargeWaiterLooksAtNumberOfRows(_CountsRowsForMany):
    """Wakes a claim for more than eight rows if the number of the partition's rows has changed."""


class _PassesBareRows(WakesSome):
    def note(self) -> Any:
        return {
            (name, row.sample_id)
            for name in self._index._partitions
            for row in rows_in(self._index, name, None)
            if not row.fields
        }

    def concern(self, partition_id: str, task: str, noted: Any) -> bool:
        return any(
            row.fields and task not in row.claimed_by and (partition_id, row.sample_id) not in noted
            for row in rows_in(self._index, partition_id, None)
        )


@controller_mutant("CLAIM-05", evidence="the blocked claim to come back within", chance=False)
class WaiterPassesRowsWithOnlyTags(_PassesBareRows):
    """Wakes a claim only if a row is ready that did not have only tags when it began to wait."""


#: Seconds after which a waiting claim is parked.
PARKED_S = 5.0


class _ParksWaiters(WakesSome):
    _claimant, _putter = "", ""

    async def claim_of(self, process: str, *claim: Any) -> Any:
        self._claimant = process
        return await self.claim(*claim)

    async def commit(self, put: StoredPut, columns: Any, reference: list[Any]) -> Any:
        self._putter = put.writer
        return await super().commit(put, columns, reference)

    def note(self) -> Any:
        return self._claimant, time.monotonic()

    def concern(self, _partition_id: str, _task: str, noted: Any) -> bool:
        process, began = noted
        return self._putter == process or time.monotonic() - began < PARKED_S


@ray_mutant("CLAIM-05", evidence="the blocked claim to come back within")
class ParkedClaimWokenByOwnPutsOnly(ClaimsAsProcess):
    """Wakes a claim that has waited for five seconds by puts of its own process only."""

    controller_class = _ParksWaiters


class _ServesOldestFirst(WakesSome):
    _queue = State(dict[int, tuple[str, tuple[str, str], list[str]]])  # of claims that wait
    _number = 0

    async def claim_of(self, process: str, *claim: Any) -> Any:
        partition_id, task, names, _, wait_s = claim
        if wait_s is None:
            return await self.claim(*claim)
        self._number += 1
        number = self._number
        self._queue[number] = process, (partition_id, task), sorted(names)
        try:
            return await self.claim(*claim)
        finally:
            del self._queue[number]

    def note(self) -> Any:
        return self._number

    def concern(self, _partition_id: str, _task: str, noted: Any) -> bool:
        process, where, names = self._queue[noted]
        older = (claim for number, claim in self._queue.items() if number < noted)
        return not any(
            other != process and place == where and needs != names for other, place, needs in older
        )


@ray_mutant("CLAIM-05", evidence="the blocked claim to come back within")
class OlderWaiterServedFirst(ClaimsAsProcess):
    """Lets a claim wait behind an older one of another process that requires other fields."""

    controller_class = _ServesOldestFirst


class _Subscriptions(WakesSome):
    _members = State(set[str])
    _putter = ""

    async def join(self, process: str) -> None:
        self._members.add(process)

    async def commit(self, put: StoredPut, columns: Any, reference: list[Any]) -> Any:
        self._putter = put.writer
        return await super().commit(put, columns, reference)

    def note(self) -> Any:
        return frozenset(self._members)

    def concern(self, _partition_id: str, _task: str, noted: Any) -> bool:
        return self._putter in noted


@ray_mutant("CLAIM-05", evidence="the blocked claim to come back within")
class LateJoinerWakesNobody(ControllerClient):
    """Lets a waiting claim subscribe to the processes that are attached when it begins."""

    controller_class = _Subscriptions

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._connection.call("join", process_id())


class _WaitersByTask(WakesSome):
    _ended = State(Counter[tuple[str, str]])

    async def end_waits(self, partition_id: str, task: str) -> None:
        self._ended[partition_id, task] += 1
        self._wake(partition_id)

    def note(self) -> Counter[tuple[str, str]]:
        return self._ended.copy()

    def concern(self, partition_id: str, task: str, noted: Any) -> bool:
        if self._ended[partition_id, task] != noted[partition_id, task]:
            raise ClientClosed("the client of this claim was closed")
        return True


@ray_mutant("LIFE-02", evidence="ClientClosed", may_fail="LIFE-10")
class CloseEndsWaitsOfTask(ControllerClient):
    """Cancels the waiting claims of a task, also of other clients, if one of them closes."""

    controller_class = _WaitersByTask

    _waits = State(Counter[tuple[str, str]])

    def claim_meta(
        self, partition_id: str, task_name: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        key = str(partition_id), str(task_name)
        self._waits[key] += 1
        try:
            return super().claim_meta(partition_id, task_name, *args, **kwargs)
        finally:
            self._waits[key] -= 1

    def close(self) -> None:
        waiting = [key for key, count in self._waits.items() if count]
        for key in () if self._owner else waiting:
            self._connection.call("end_waits", *key)
        super().close()
