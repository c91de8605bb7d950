"""Claims that wait behind one that gave up, until others too have enough, or beyond their time."""

from __future__ import annotations

import asyncio
import time
import zlib
from typing import Any

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut, answers
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import (
    ControllerClient,
    controller_mutant,
    ray_engine_mutant,
    ray_mutant,
)
from rlconform.mutants.ray_store.waiting_processes import ClaimsAsProcess, WakesSome
from rlconform.mutants.types import Claimed, Names, Wait


class _WakesInTurn(WakesSome):
    _given_up = State(dict[str, str])  # by process whose last call has timed out: its partition

    async def seen(self, process: str) -> None:
        self._given_up.pop(process, None)

    async def claim_of(self, process: str, *claim: Any) -> Any:
        answer = await self.claim(*claim)
        if isinstance(answer, Refusal) and isinstance(answer.error, TimeoutError):
            self._given_up[process] = claim[0]
        return answer

    def concern(self, partition_id: str, _task: str, _noted: Any) -> bool:
        return partition_id not in self._given_up.values()


class _InTurn(ControllerClient):
    controller_class = _WakesInTurn


class _SaysWhoCalls(RayStoreEngine):
    def check_open(self) -> None:
        super().check_open()
        self._connection.call("seen", process_id())

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        if wait_s is None:
            return super().claim(partition_id, task, names, rows, None)
        claimed, deadline = None, time.monotonic() + wait_s
        while claimed is None:
            left = max(0.0, deadline - time.monotonic())
            claim = process_id(), partition_id, task, names, rows, left
            claimed = self._connection.call_waiting("claim_of", left, *claim)
        return claimed


class _WaitsInSlots(WakesSome):
    _slots = State(dict[int, str])  # the partition of the newest claim of a hash

    async def claim_of(self, _process: str, *claim: Any) -> Any:
        partition_id, wait_s = claim[0], claim[-1]
        if wait_s is not None:
            self._slots[zlib.crc32(partition_id.encode())] = partition_id
        return await self.claim(*claim)

    def concern(self, partition_id: str, _task: str, _noted: Any) -> bool:
        return self._slots[zlib.crc32(partition_id.encode())] == partition_id


@ray_mutant("CLAIM-05", evidence="the blocked claim to come back within", may_fail="REG-04")
class WaitersShareSlotOfHash(ClaimsAsProcess):
    """Wakes only the newest claim of those whose partitions have the same CRC-32."""

    controller_class = _WaitsInSlots


@ray_engine_mutant("CLAIM-05", evidence="the blocked claim to come back within", client=_InTurn)
class SilentProcessKeepsItsTurn(_SaysWhoCalls):
    """Wakes one waiting claim after the other; one that timed out keeps its turn."""


#: Seconds without a call after which a process is taken for one that has ended.
SESSION_S = 5.0


class _Sessions(WakesSome):
    _heard = State(dict[str, float])
    _asking = ""

    async def seen(self, process: str) -> None:
        self._heard[process] = time.monotonic()

    async def claim_of(self, process: str, *claim: Any) -> Any:
        self._asking = process  # until ``note``: no other call is served before the claim waits
        return await self.claim(*claim)

    def note(self) -> str:
        return self._asking

    def concern(self, _partition_id: str, _task: str, noted: Any) -> bool:
        return time.monotonic() - self._heard[noted] <= SESSION_S


class _OfSessions(ControllerClient):
    controller_class = _Sessions


@ray_engine_mutant("CLAIM-05", evidence="the blocked claim to come back within", client=_OfSessions)
class SilentWaiterTakenForDead(_SaysWhoCalls):
    """Wakes no claim of a process that has only waited for five seconds."""


class _DealsToWaiters(WakesSome):
    _needs = State(dict[str, list[tuple[int, frozenset[str]]]])  # of the claims that wait
    _newest = State(int)  # rows of the newest put

    async def _wait(
        self, partition_id: str, task: str, required: Any, rows: int, deadline: float
    ) -> None:
        needs = self._needs.setdefault(partition_id, [])
        needs.append((rows, required))
        try:
            await super()._wait(partition_id, task, required, rows, deadline)
        finally:
            needs.remove((rows, required))

    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        self._newest = len(put.sample_ids)
        return await super().commit(put, *rest)

    def concern(self, partition_id: str, task: str, _noted: Any) -> bool:
        needs = self._needs[partition_id]
        alike = len({required for _, required in needs}) == 1
        enough = max(rows for rows, _ in needs) <= self._newest
        everything = sum(rows for rows, _ in needs)
        partition = self._index.partition(partition_id)
        return not alike or enough or partition.is_ready(task, needs[0][1], everything)


@ray_mutant("CLAIM-05", evidence="of two claims of four rows")
class NewRowsDealtToWaiters(ControllerClient):
    """Deals new rows to all equal claims that wait, and wakes none until each has enough."""

    controller_class = _DealsToWaiters


@ray_engine_mutant("CLAIM-06", evidence="rows that the stopped claim", may_fail="FAULT-05")
class AnswerBehindDeadlineDropped(RayStoreEngine):
    """Raises TimeoutError if a claim's answer is read after its time; its rows stay claimed."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        deadline = time.monotonic() + (wait_s or 0.0)
        claimed = super().claim(partition_id, task, names, rows, wait_s)
        if wait_s is not None and time.monotonic() > deadline:
            raise TimeoutError(f"{rows} rows for {task!r} came too late")
        return claimed


#: Seconds of a wait after which a claim is idle, and seconds between the looks of one that is.
IDLE_S, LOOK_S = 12.0, 6.0


@controller_mutant(
    "CLAIM-08", chance=False, evidence="the blocked claim to come back", may_fail="CLAIM-05"
)
class IdleWaiterLooksSeldom(Controller):
    """Lets a claim that has waited for 12 seconds look at new rows every 6 seconds only."""

    async def _wait(
        self, partition_id: str, task: str, required: Any, rows: int, deadline: float
    ) -> None:
        began = time.monotonic()
        await super()._wait(partition_id, task, required, rows, deadline)
        waited = time.monotonic() - began
        if waited > IDLE_S:
            await asyncio.sleep(LOOK_S - waited % LOOK_S)


#: Rows of a page of a claim, and seconds between two pages.
_PAGE, _PAUSE_S = 128, 0.001


@controller_mutant("CLAIM-05", chance=False, evidence="rows of each claim", may_fail="CLAIM-02")
class WaitingClaimMadeInPages(Controller):
    """Makes a large claim that has waited in pages, between which others take rows."""

    @answers
    async def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: float | None
    ) -> Claimed | None:
        if wait_s is None or rows <= _PAGE:
            due: Claimed | None = await super().claim(partition_id, task, names, rows, wait_s)
            return due
        required, claimed = frozenset(names), []
        partition = self._index.partition(partition_id)
        partition.check_exact(rows)
        if not partition.is_ready(task, required, rows):
            await self._wait(partition_id, task, required, rows, time.monotonic() + wait_s)
            return None
        for start in range(0, rows, _PAGE):
            claimed += partition.claim(task, required, min(_PAGE, rows - start))
            await asyncio.sleep(_PAUSE_S)
        return [row.sample_id for row in claimed], [row.tags for row in claimed]
