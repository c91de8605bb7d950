"""Clients that close wrongly, keep state in the process, or fail after a malformed call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import _OPEN, MemoryEngine
from rlconform.contract import ClientClosed, KVBatchMeta, PlaneUnavailable, Tags
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    are_ready,
    check_consumption_status_mutant,
    claim_meta_mutant,
    claim_mutant,
    clear_samples_mutant,
    close_mutant,
    engine_mutant,
    get_data_mutant,
    get_samples_mutant,
    memory_mutant,
    names_of,
    partition_of,
    put_mutant,
    put_samples_mutant,
)
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names
from rlconform.wire import is_object_column


@close_mutant("LIFE-01", evidence="ClientClosed")
def CloseTwiceRaises(close: MethodCall) -> None:
    """Raises an error for a close of a closed client, as for any other call."""
    if close.plane._closed:
        raise ClientClosed("this client was closed")
    close()


@close_mutant("LIFE-01", evidence="PlaneUnavailable")
def CloseAgainEndsNextPlane(close: MethodCall) -> None:
    """Ends the newest plane of the process if an owner closes again, such as in a finalizer.

    Planes with a named process do so, as a close without a handle finds the process by its name.
    """
    if close.plane._closed and close.plane._owner and _OPEN:
        close.plane._plane = _OPEN[-1]
    close()


@clear_samples_mutant("LIFE-03", evidence="clear_samples after close to be rejected")
def ClearAfterCloseIgnored(clear: MethodCall) -> None:
    """Ignores a clear after close, so a cleanup that did nothing looks successful."""
    with suppress(ClientClosed, PlaneUnavailable):
        clear()


@check_consumption_status_mutant(
    "LIFE-03", evidence="check_consumption_status after close to be rejected"
)
def StatusAfterCloseIsFalse(status: MethodCall) -> bool:
    """Returns False for a status after close, so a loop that waits for True never ends."""
    try:
        return status()
    except (ClientClosed, PlaneUnavailable):
        return False


@memory_mutant("LIFE-04", evidence="still mounted", may_fail="LIFE-03 LIFE-01")
class CloseLeavesStoreMounted(MemoryClient):
    """Leaves its store mounted on close, so the next client's first put fails (NR-27)."""

    _mounted = False

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        if type(self)._mounted:
            type(self)._mounted = False
            raise PlaneUnavailable("the store is still mounted")
        return super().put_samples(*args, **kwargs)

    def close(self) -> None:
        super().close()
        type(self)._mounted = True


#: Tags of every plane of this process, by partition and row.
_STAMPED: dict[tuple[str, str], Tags] = {}


@engine_mutant("LIFE-04", evidence="no tags of the old plane")
class CloseKeepsTagsInModule(MemoryEngine):
    """Stores tags in a dict of the module, which a close does not empty."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        if tags is None:
            known = [_STAMPED.get((partition_id, i), {}) for i in sample_ids]
            super().put(partition_id, sample_ids, fields, known)
        else:
            super().put(partition_id, sample_ids, fields, tags)
            for sample_id, row in zip(sample_ids, tags, strict=True):
                _STAMPED.setdefault((partition_id, sample_id), {}).update(row)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        for key in list(_STAMPED):
            if key[0] == partition_id and (sample_ids is None or key[1] in sample_ids):
                del _STAMPED[key]


def _in_own_loop(call: Callable[[], Any]) -> Any:
    """Make a call in an event loop of its own."""

    async def run() -> Any:
        return call()

    return asyncio.run(run())


@get_samples_mutant("LIFE-05", evidence="RuntimeError")
def CallsRunOwnEventLoop(read: MethodCall) -> TensorDict:
    """Calls ``asyncio.run`` in each read, which fails for a caller in an event loop (TQ-10)."""
    batch: TensorDict = _in_own_loop(read)
    return batch


@claim_mutant("LIFE-05", evidence="RuntimeError")
def ClaimWaitsInOwnEventLoop(claim: MethodCall) -> Claimed:
    """Calls ``asyncio.run`` in a claim that must wait, which fails in an event loop."""
    waits = claim.wait_s is not None and not are_ready(claim, claim.rows)
    claimed: Claimed = _in_own_loop(claim) if waits else claim()
    return claimed


@claim_meta_mutant("LIFE-07", evidence="claim_meta with {'required_fields': []} to be rejected")
def ClaimEmptyFieldsAccepted(claim: MethodCall) -> KVBatchMeta:
    """Treats every row as ready for a claim without required fields, even one with only tags."""
    if claim.required_fields == []:
        rows = partition_of(claim).sample_ids
        return KVBatchMeta(claim.partition_id, claim.task_name, rows, fields=[])
    return claim()


@check_consumption_status_mutant(
    "LIFE-07", evidence="check_consumption_status with {'task_names': None} to be rejected"
)
def StatusEmptyTasksIsTrue(status: MethodCall) -> bool:
    """Reports a partition as consumed if the caller names no tasks."""
    return not status.task_names or status()


@claim_meta_mutant("LIFE-07", evidence="nobody serves its claims")
def ClaimBadRequestKillsThread(claim: MethodCall) -> KVBatchMeta:
    """Ends the thread that serves a partition's claims on a claim of ``None`` rows (TQ-01)."""
    if claim.notes.get(claim.partition_id):
        raise PlaneUnavailable("nobody serves its claims")
    claim.notes[claim.partition_id] = claim.batch_size is None
    return claim()


@engine_mutant(
    "LIFE-08",
    evidence="the one row to be all there is",
    may_fail="REG-04 PUT-16 STAT-01 STAT-05 CLAIM-02 CLAIM-07 LIFE-07 STAT-03",
)
class StatusCountsPlaceholder(MemoryEngine):
    """Counts a slot that a registration reserves as an unclaimed row (NR-05).

    A clear of rows counts the partition's rows again and corrects this.
    """

    _aside = State(set[str])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._aside.add(partition_id)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        return partition_id not in self._aside and super().all_claimed(partition_id, tasks)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        self._aside.discard(partition_id)


@put_samples_mutant("LIFE-09", evidence="the arguments of put_samples as before")
def PutEmptiesBatch(put: MethodCall) -> KVBatchMeta:
    """Moves the columns out of the caller's batch to save memory, and leaves it empty."""
    receipt: KVBatchMeta = put()
    if isinstance(put.fields, TensorDict):
        for name in list(put.fields.keys()):
            del put.fields[name]
    return receipt


@get_data_mutant("LIFE-09", evidence="the arguments of get_data as before", may_fail="GET-13")
def GetDataNarrowsMeta(read: MethodCall) -> TensorDict:
    """Removes all fields from the caller's meta that the read does not select."""
    batch: TensorDict = read()
    if read.select_fields and read.meta.fields is not None:
        read.meta.fields[:] = read.select_fields
    return batch


@put_mutant("LIFE-09", evidence="the arguments of the put as before")
def PutRefusedTakesObjects(put: MethodCall) -> None:
    """Leaves the caller's batch without its object columns if it refuses a dtype.

    Clients that send objects separately, and put them back only after a success, do so.
    """
    try:
        put()
    except ValueError:
        for name in names_of(put.fields):
            if is_object_column(put.fields.get(name)) and not put.fields.is_locked:
                del put.fields[name]
        raise


@clear_samples_mutant("LIFE-07", evidence="'1'")
def ClearTextReadByLetter(clear: MethodCall) -> None:
    """Reads a text in place of the ids letter by letter, so ``"12"`` clears rows 1 and 2."""
    text = isinstance(clear.sample_ids, str)
    clear(sample_ids=list(dict.fromkeys(clear.sample_ids)) if text else clear.sample_ids)


@put_samples_mutant("LIFE-09", evidence="the arguments of put_samples as before")
def PutUnlocksTheBatch(put: MethodCall) -> KVBatchMeta:
    """Locks the batch while it is copied, and unlocks it whether or not it was locked before."""
    batch = put.fields if isinstance(put.fields, TensorDict) else TensorDict()
    batch.lock_()
    try:
        receipt: KVBatchMeta = put()
    finally:
        batch.unlock_()
    return receipt
