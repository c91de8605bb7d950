"""Claims that return rows that are not ready, or a meta with wrong contents."""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, UnknownPartition, UnknownTask
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    KnowsDeclared,
    claim_meta_mutant,
    claim_mutant,
    engine_mutant,
    known_rows,
    mark,
    memory_mutant,
    names_of,
    partition_of,
    put_mutant,
)
from rlconform.mutants.types import Claimed, Ids, Names, Wait
from rlconform.wire import object_rows, rows_of


@claim_meta_mutant("CLAIM-01", evidence="rows of a claim of none")
def ClaimZeroIsUnlimited(claim: MethodCall) -> KVBatchMeta:
    """Treats a ``batch_size`` of 0 as "all rows"."""
    return claim(batch_size=1 << 30) if claim.batch_size == 0 else claim()


@claim_meta_mutant("CLAIM-01", evidence="no row ready for 'train' beside", plane=KnowsDeclared)
def ClaimUndeclaredFieldsIgnored(claim: MethodCall) -> KVBatchMeta:
    """Ignores required fields that were not declared, so it returns rows that lack them."""
    declared = claim.plane.declared.get(claim.partition_id, ())
    known = [name for name in claim.required_fields if name in declared]
    meta = claim(required_fields=known or claim.required_fields)
    return replace(meta, fields=list(claim.required_fields))


@claim_mutant(
    "CLAIM-03 STAT-01 CLEAR-01 CLEAR-05 REG-04 PUT-09 CLAIM-09", evidence="rows of the other task"
)
def ClaimCursorSharedBySameFields(claim: MethodCall) -> Claimed:
    """Keeps one cursor per list of required fields, so tasks with the same list share rows."""
    first = claim.notes.setdefault((claim.partition_id, frozenset(claim.names)), claim.task)
    return claim(task=first) if claim.task in partition_of(claim)._tasks else claim()


@engine_mutant("CLAIM-03", evidence="whose partition has the long name")
class ClaimCursorKeyAmbiguous(MemoryEngine):
    """Names cursors ``partition:task``, so (a, b:c) and (a:b, c) share a cursor."""

    _cursors = State(lambda: defaultdict[str, dict[str, str]](dict))

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        cursor = self._cursors[f"{partition_id}:{task}"]
        new = [n for n, i in enumerate(ids) if cursor.setdefault(i, partition_id) == partition_id]
        return [ids[n] for n in new], [tags[n] for n in new]

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        for cursor in self._cursors.values():
            for sample_id, where in list(cursor.items()):
                if where == partition_id and (sample_ids is None or sample_id in sample_ids):
                    del cursor[sample_id]


@claim_meta_mutant(
    "CLAIM-07 CLAIM-01 CLAIM-05",
    evidence="rows before their last field",
    may_fail="CLAIM-02 CLAIM-15",
)
def ClaimFirstFieldSuffices(claim: MethodCall) -> KVBatchMeta:
    """Treats a row as ready when it has the first of the required fields."""
    meta = claim(required_fields=claim.required_fields[:1])
    return replace(meta, fields=list(claim.required_fields))


@claim_meta_mutant("CLAIM-07", evidence="rows before their last field", may_fail="CLAIM-02")
def ClaimLastFieldSuffices(claim: MethodCall) -> KVBatchMeta:
    """Treats a row as ready when it has the last field in the list of required fields."""
    meta = claim(required_fields=claim.required_fields[-1:])
    return replace(meta, fields=list(claim.required_fields))


@put_mutant(
    "CLAIM-07", evidence="rows after it", may_fail="CLAIM-02 CLAIM-05 CLAIM-10 CLAIM-15 STAT-01"
)
def ClaimNeverRechecksRow(put: MethodCall) -> None:
    """Checks a row only at its first put: a row that gets its last field later is never claimed."""
    grown = [row for row in known_rows(put) if names_of(put.fields) - row.fields]
    put()
    with put.plane._locked():
        partition_of(put)._queues.discard(grown)


def _is_empty(leaf: Any) -> bool:
    """Whether a column of one row has no values, or the object None."""
    if isinstance(leaf, Tensor):
        return not rows_of(leaf)[0].numel()
    return object_rows(leaf, 1)[0] is None


@claim_mutant("CLAIM-07", evidence="an aborted rollout's")
def ClaimEmptyRowsNeverReady(claim: MethodCall) -> Claimed:
    """Treats empty values as not produced, so rows without tokens or with None are never ready."""
    ids, tags = claim()
    full = []
    for n, sample_id in enumerate(ids):
        with suppress(LookupError):  # it was cleared in the meantime
            leaves = claim.plane.get(claim.partition_id, [sample_id], claim.names).values()
            if any(map(_is_empty, leaves)):
                continue
        full.append(n)
    return [ids[n] for n in full], [tags[n] for n in full]


@claim_mutant("CLAIM-11", evidence="a task that was not registered")
def ClaimUnknownTaskCreated(claim: MethodCall) -> Claimed:
    """Creates an unknown task, with a new cursor, instead of rejecting the claim (NR-03)."""
    partition_of(claim)._tasks.add(claim.task)
    return claim()


@claim_mutant("CLAIM-11", evidence="a partition that was not registered")
def ClaimUnknownPartitionIsEmpty(claim: MethodCall) -> Claimed:
    """Returns an empty batch for a claim on an unknown partition instead of an error."""
    try:
        return claim()
    except UnknownPartition:
        return [], []


@claim_meta_mutant("CLAIM-11", evidence="to be refused; got TimeoutError")
def ClaimUnknownTaskAwaited(claim: MethodCall) -> KVBatchMeta:
    """Waits for an unknown task to be registered, so a claim with a typo waits for its timeout."""
    try:
        return claim()
    except UnknownTask as error:
        if not claim.blocking:
            raise
        time.sleep(float(claim.timeout_s))  # nothing ends the wait early
        raise TimeoutError("no such task was registered") from error


@claim_meta_mutant("CLAIM-14", evidence="fields ['y', 'x']")
def ClaimMetaSortsFields(claim: MethodCall) -> KVBatchMeta:
    """Sorts the meta's fields: a caller that reads columns by position reads the wrong ones."""
    meta = claim()
    return replace(meta, fields=sorted(meta.fields or []))


@claim_meta_mutant("CLAIM-14", evidence="task_name 'train'")
def ClaimMetaWithoutTask(claim: MethodCall) -> KVBatchMeta:
    """Returns the meta of a claim without its task, like the meta of a put."""
    return replace(claim(), task_name=None)


@memory_mutant("CLAIM-14 SHARD-02", evidence="partition_id")
class ClaimMetaRenamesPartition(MemoryClient):
    """Returns its internal name of the partition in the meta; reads accept both names."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, partition_id=f"plane/{meta.partition_id}")

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        if isinstance(partition_id, str):
            partition_id = partition_id.removeprefix("plane/")
        return super().get_samples(sample_ids, partition_id, select_fields)


@claim_meta_mutant("CLAIM-14", evidence="fields ['y', 'x']", may_fail="CLAIM-08 GET-11")
def ClaimMetaNamesAllFields(claim: MethodCall) -> KVBatchMeta:
    """Lists in the meta every field that the rows have, not the fields that the claim required."""
    meta = claim()
    rows = partition_of(claim)._rows
    named = set(meta.fields).union(*(rows[i].fields for i in meta.sample_ids if i in rows))
    return replace(meta, fields=sorted(named))


@claim_meta_mutant("CLAIM-14", evidence="task_name 'train'")
def ClaimBlockingMetaWithoutTask(claim: MethodCall) -> KVBatchMeta:
    """Omits the task from the meta of a blocking claim, which has a separate code path."""
    meta = claim()
    return replace(meta, task_name=None) if claim.blocking else meta


@claim_meta_mutant("CLAIM-17", evidence="type of sequence_lengths")
def ClaimLengthsAsTuple(claim: MethodCall) -> KVBatchMeta:
    """Returns ``sequence_lengths`` as a tuple, as a deserializer does."""
    meta: KVBatchMeta = claim()
    lengths: Any = meta.sequence_lengths and tuple(meta.sequence_lengths)
    return replace(meta, sequence_lengths=lengths)


@claim_meta_mutant("GET-13", evidence="extra_info of its own on every meta")
def ClaimMetasShareExtraInfo(claim: MethodCall) -> KVBatchMeta:
    """Returns all metas with one ``extra_info``, so a step's entries appear in the next step."""
    return replace(claim(), extra_info=claim.notes.setdefault("extra_info", {}))


@claim_meta_mutant("GET-13", evidence="1:1 with the ids; got []")
def ClaimEmptyMetasShared(claim: MethodCall) -> KVBatchMeta:
    """Returns one meta for all empty claims of a task, so ids that a caller adds come again.

    Clients that cache the answer that a polling consumer gets most often do so.
    """
    meta: KVBatchMeta = claim()
    key = (claim.partition_id, claim.task_name, *claim.required_fields)
    shared: KVBatchMeta = meta if meta.sample_ids else claim.notes.setdefault(key, meta)
    return shared


@put_mutant("CLAIM-07", evidence="rows with an overwritten and a new field")
def ClaimMissesRowsOverwrittenAndCompleted(put: MethodCall) -> None:
    """Takes a put that overwrites a field of a row for an overwrite, which makes no row ready."""
    names = names_of(put.fields)
    old = [row for row in known_rows(put) if names & row.fields and names - row.fields]
    put()
    with put.plane._locked():
        partition_of(put)._queues.discard(old)


@claim_mutant("CLAIM-03", evidence="rows of the task 'train'")
def ClaimKeyOfTaskAndIdAmbiguous(claim: MethodCall) -> Claimed:
    """Notes claims as ``task|id``, so task a|b with row c claims row b|c for task a."""
    ids, tags = claim()
    with claim.plane._locked():
        partition = partition_of(claim)
        noted = {f"{claim.task}|{sample_id}" for sample_id in ids}
        for task in partition._tasks:
            same = [row for i, row in partition._rows.items() if f"{task}|{i}" in noted]
            mark(partition, same, task)
    return ids, tags


@claim_meta_mutant("GET-13", evidence="the fields that the claim was asked for")
def MetaKeepsCallersFields(claim: MethodCall) -> KVBatchMeta:
    """Returns the caller's own list of required fields as the fields of the meta."""
    return replace(claim(), fields=claim.required_fields)
