"""Claims that wait behind one that has given up."""

from __future__ import annotations

import time
from typing import Any

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.controller import Refusal
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_engine_mutant
from rlconform.mutants.ray_store.waiting_processes import WakesSome
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


@ray_engine_mutant("CLAIM-05", evidence="the blocked claim to come back within", client=_InTurn)
class SilentProcessKeepsItsTurn(RayStoreEngine):
    """Wakes one waiting claim after the other; one that timed out keeps its turn."""

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
