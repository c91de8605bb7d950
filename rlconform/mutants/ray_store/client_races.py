"""Clients whose own code causes races with other threads or processes."""

from __future__ import annotations

import time
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import through_one_buffer
from rlconform.mutants.memory.helpers import put_placeholder
from rlconform.mutants.ray_store.mutant import ray_call_mutant, ray_mutant
from rlconform.mutants.types import Names


@ray_call_mutant(RayStoreClient.put_samples, "LIFE-05", evidence="wrong-row", chance=True)
def AttachedPutBufferShared(put: MethodCall) -> KVBatchMeta:
    """An attached client sends the puts of all its threads through one buffer without a lock.

    In the incident, the threads of an async actor shared one connection; in the driver, each call
    had a separate connection (TQ-10).
    """
    if put.plane._owner:
        return put()
    buffer = put.notes.setdefault("buffer", bytearray())
    return put(fields=through_one_buffer(buffer, put.fields))


@ray_call_mutant(RayStoreClient.register_partition, "LIFE-08", evidence="phantom", chance=True)
def ProcessesRegisterPutsPlaceholder(register: MethodCall) -> None:
    """Registers the fields of a partition by putting a placeholder row and clearing it.

    In the incident, consumers claimed 272 placeholder rows (NR-17).
    """
    register()
    put_placeholder(register, 0.0)


#: How long a client caches a status, in seconds.
REMEMBERED_S = 0.03


@ray_mutant("STAT-02", evidence="non-monotonic", may_fail="STAT-01", chance=True)
class StatusCachedByProcess(RayStoreClient):
    """Caches the last status for 30 ms, or until the same process puts, claims or clears."""

    _known = State(dict[tuple[str, ...], tuple[float, bool]])

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        key = (str(partition_id), *map(str, task_names or ()))
        asked, answer = self._known.get(key, (0.0, False))
        if time.monotonic() - asked > REMEMBERED_S:
            answer = super().check_consumption_status(partition_id, task_names)
            self._known[key] = (time.monotonic(), answer)
        return answer

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._known.clear()
        return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._known.clear()
        return super().claim_meta(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._known.clear()
        super().clear_samples(*args, **kwargs)
