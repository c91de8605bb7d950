"""Claims that return a row twice, or never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, UnknownField
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.helpers import (
    claim_by_cursor,
    claim_mutant,
    engine_mutant,
    find_rows,
    get_mutant,
    give_back,
    held,
    known_rows,
    memory_mutant,
    names_of,
    partition_of,
    put_mutant,
)
from rlconform.mutants.types import Claimed, Ids, Names, Wait


@engine_mutant("CLAIM-02", evidence="rows not yet claimed", may_fail="CLAIM-10 CLEAR-01")
class ClaimCursorCountsFromFront(MemoryEngine):
    """Stores a cursor as a count of claimed rows, so after a clear it skips unclaimed rows."""

    _passed_over = State(Counter[tuple[str, str]])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        for row in find_rows(self, partition_id, sample_ids):
            self._passed_over.update((partition_id, task) for task in row.claimed_by)
        super().clear(partition_id, sample_ids)
        if not held(self, partition_id)._rows:  # an empty partition restarts its count
            for key in [key for key in self._passed_over if key[0] == partition_id]:
                del self._passed_over[key]

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        over = self._passed_over.pop((partition_id, task), 0)
        if over:
            super().claim(partition_id, task, names, over, None)
        return super().claim(partition_id, task, names, rows, wait_s)


def _put_and_queue_again(put: MethodCall, again: Callable[[IndexRow, set[str]], bool]) -> None:
    """Put, and queue rows for which ``again`` is true for the tasks that have claimed them."""
    old = [row for row in known_rows(put) if again(row, names_of(put.fields))]
    put()
    with put.plane._locked():
        for row in old:
            for task in row.claimed_by:
                give_back(partition_of(put), [row], task)


#: Decorator of a function that returns whether a put of these fields queues a row again.
queueing_mutant = applied(put_mutant, _put_and_queue_again)


@queueing_mutant(
    "CLAIM-08", evidence="rows claimed again after a write", may_fail="CLAIM-10 STAT-01"
)
def ClaimRepeatsOverwrittenRows(row: IndexRow, names: set[str]) -> bool:
    """Queues a row again when a field is overwritten, so tasks claim it twice."""
    return bool(row.fields & names)


@queueing_mutant("CLAIM-08", evidence="rows claimed again", may_fail="CLAIM-02 CLAIM-10")
def ClaimRepeatsGrownRows(row: IndexRow, names: set[str]) -> bool:
    """Queues a row again when it gets a new field, also for tasks that have claimed it."""
    return bool(names - row.fields)


@queueing_mutant(
    "CLAIM-08",
    evidence="rows claimed again after a put of tags",
    may_fail="CLAIM-02 TAG-01 CLAIM-10 STAT-01",
)
def ClaimRepeatsStampedRows(row: IndexRow, names: set[str]) -> bool:
    """Queues rows again after a put of tags alone, so tasks claim them twice."""
    return not names


#: Claims that a task remembers.
WINDOW = 8192


@put_mutant("CLAIM-08", evidence="rows claimed again after a write")
def ClaimRepeatsRowsClaimedLongAgo(put: MethodCall) -> None:
    """Remembers only the last 8,192 claims, so a task claims an older row again after a write."""
    old = [row for row in known_rows(put) if row.fields & names_of(put.fields)]
    put()
    with put.plane._locked():
        for row in old:
            for task in row.claimed_by:
                if partition_of(put)._claimed[task] > row.age + WINDOW:
                    give_back(partition_of(put), [row], task)


@claim_mutant(
    "CLAIM-08", evidence="rows claimed again by other fields", may_fail="CLAIM-02 CLAIM-10 CLAIM-05"
)
def ClaimCursorPerFieldList(claim: MethodCall) -> Claimed:
    """Starts from the first row again when a task requires other fields than before."""
    return claim_by_cursor(claim, f"{claim.task}|{sorted(claim.names)}")


@get_mutant(
    "CLAIM-09 SHARD-02 PUT-13",
    evidence="it was delivered",
    may_fail="PUT-09 LIFE-05 GET-01 CLEAR-01",
)
def GetClaimedRowsDeliveredOnce(read: MethodCall) -> TensorDict:
    """Returns the values of a claimed row only once, as a queue does, and then drops them."""
    batch = read()
    values = {(row, name) for row in known_rows(read) for name in read.names if row.claimed_by}
    if values & read.notes.keys():
        raise UnknownField("it was delivered")
    read.notes.update(dict.fromkeys(values))
    return batch


@claim_mutant(
    "CLAIM-09",
    evidence="never put, or cleared",
    may_fail="REG-03 REG-04 PUT-12 TAG-01 CLAIM-08 STAT-01 CLEAR-01 CLEAR-04",
)
def ClaimFreesFullyClaimedRows(claim: MethodCall) -> Claimed:
    """Frees a row when every task has claimed it, before any task has read it."""
    claimed: Claimed = claim()
    rows = find_rows(claim.plane, claim.partition_id, claimed[0])
    done = [row.sample_id for row in rows if row.claimed_by >= partition_of(claim)._tasks]
    claim.plane.clear(claim.partition_id, done)
    return claimed


@put_mutant("CLAIM-08", evidence="rows claimed again after an overwrite")
def PutOfOtherDtypeIsNewRow(put: MethodCall) -> None:
    """Treats a row as new when a field gets another dtype, so every task may claim it again."""
    leaf = put.fields.get("x", None) if put.fields is not None else None
    before = put.notes.get((put.partition_id, *put.sample_ids))
    put()
    if isinstance(leaf, torch.Tensor):
        put.notes[put.partition_id, *put.sample_ids] = leaf.dtype
        if before not in {None, leaf.dtype}:
            for row in known_rows(put):
                for task in row.claimed_by:
                    give_back(partition_of(put), [row], task)


@put_mutant("CLAIM-08", evidence="rows claimed again after a refused put")
def PutRefusedGivesClaimsBack(put: MethodCall) -> None:
    """Gives the rows of a put that it refuses back to the tasks that have claimed them.

    Planes that undo a put by writing the rows anew, as rows that no task has claimed, do so.
    """
    try:
        put()
    except ValueError:
        with put.plane._locked():
            for row in known_rows(put):
                for task in row.claimed_by:
                    give_back(partition_of(put), [row], task)
        raise


@memory_mutant("CLAIM-02", evidence="put from lists that then changed")
class ClaimByTheCallersLists(MemoryClient):
    """Keeps the caller's list of ids until the next claim, which finds what it names by then."""

    _puts = State(list[tuple[Ids, Ids, str]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._puts.append((sample_ids, list(sample_ids), partition_id))
        return receipt

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        for given, before, partition_id in self._puts:
            if given != before:
                lost = set(before) - set(given)
                super().clear_samples(sorted(lost), partition_id)
        self._puts = []
        return super().claim_meta(*args, **kwargs)
