"""Answers, deadlines and lists of consumers that several processes share by mistake."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from tensordict import TensorDict

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_engine_mutant
from rlconform.mutants.types import Claimed, Ids, Names, Wait

#: Seconds between two looks of a consumer that a producer does not know.
_POLL_S = 5.0


class _SharesAnswers(Controller):
    _asked = State(dict[Any, tuple[str, Ids]])  # the last read of these rows: by whom, and its ids
    _deadlines = State(dict[Any, float])
    _joined = State(Counter[Any])
    _producing = State(dict[str, float])  # since when, by partition

    async def asked(self, key: Any, sample_ids: Ids, reader: str) -> Ids:
        """Return the ids of the last read of the same rows, if it was of another process."""
        by, before = self._asked.get(key, (reader, sample_ids))
        self._asked[key] = reader, sample_ids
        return sample_ids if by == reader else before

    async def join(self, key: Any, wait_s: float) -> float:
        """Return how long the claims that wait for the same wait on."""
        self._joined[key] += 1
        if self._joined[key] == 1:
            self._deadlines[key] = time.monotonic() + wait_s
        return max(0.0, self._deadlines[key] - time.monotonic())

    async def leave(self, key: Any) -> None:
        self._joined[key] -= 1

    async def commit(self, put: StoredPut, *rest: Any) -> Any:
        self._producing.setdefault(put.partition_id, time.monotonic())
        return await super().commit(put, *rest)

    async def producing_since(self, partition_id: str) -> float:
        """Return when the first rows of the partition were put."""
        return self._producing.get(partition_id, time.monotonic())


class _Asks(ControllerClient):
    controller_class = _SharesAnswers


@ray_engine_mutant("GET-02", evidence="row", client=_Asks, may_fail="GET-01 GET-09")
class ReadsAnsweredByUniqueIds(RayStoreEngine):
    """Answers a read as the last one of another process for the same rows, however it repeats."""

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        key = (partition_id, tuple(names), tuple(dict.fromkeys(sample_ids)))
        asked = self._connection.call("asked", key, sample_ids, process_id())
        return super().get(partition_id, asked, names)


@ray_engine_mutant("CLAIM-06", evidence="of two equal claims", client=_Asks, may_fail="CLAIM-05")
class EqualClaimsShareDeadline(RayStoreEngine):
    """Keeps one deadline for all claims that wait for the same: that of the first."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        if wait_s is None:
            return super().claim(partition_id, task, names, rows, None)
        key = (partition_id, task, tuple(names), rows)
        left = self._connection.call("join", key, wait_s)
        try:
            return super().claim(partition_id, task, names, rows, left)
        finally:
            self._connection.call("leave", key)


@ray_engine_mutant(
    "CLAIM-05", evidence="the blocked claim to come back", client=_Asks, may_fail="CLAIM-06"
)
class ConsumersKnownAtFirstPut(RayStoreEngine):
    """Wakes the consumers that had attached by a partition's first put; others look each 5 s."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._attached = time.monotonic()

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        known = self._attached < self._connection.call("producing_since", partition_id)
        deadline = time.monotonic() + (wait_s or 0.0)
        while wait_s is not None and not known:
            try:
                return super().claim(partition_id, task, names, rows, 0.0)
            except TimeoutError:
                time.sleep(max(0.0, min(_POLL_S, deadline - time.monotonic())))
                if time.monotonic() >= deadline:
                    raise
        return super().claim(partition_id, task, names, rows, wait_s)
