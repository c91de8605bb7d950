"""Defects of two steps in one process: one leaves something behind, a later one meets it."""

from __future__ import annotations

import copy
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.encode import read
from rlconform.backends.index import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    claim_mutant,
    engine_mutant,
    find_rows,
    held,
    mark,
    names_of,
    partition_of,
    put_mutant,
    read_plan,
    register_mutant,
)
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows


@engine_mutant("TAG-01", evidence="expected the tags", interplay=True, may_fail="TAG-03 TAG-06")
class ClaimTagsCachedByRows(MemoryEngine):
    """Keeps the encoded tags of a claim for the next task that claims the same rows.

    A stamp drops what is kept by the first of its rows, and so misses claims that begin elsewhere.
    """

    _encoded = State(dict[tuple[str, str], tuple[Ids, Any]])

    def claim(self, partition_id: str, *args: Any) -> Claimed:
        ids, tags = super().claim(partition_id, *args)
        if len(ids) < 2:
            return ids, tags
        known, encoded = self._encoded.setdefault((partition_id, ids[0]), (ids, tags))
        if known == ids:
            return ids, copy.deepcopy(encoded)
        self._encoded[partition_id, ids[0]] = (list(ids), copy.deepcopy(tags))
        return ids, tags

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        for sample_id in ids:
            self._encoded.pop((partition_id, sample_id), None)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        for key in [key for key in self._encoded if key[0] == partition_id]:
            del self._encoded[key]


@engine_mutant("PUT-13", evidence="has rows of", may_fail="CLEAR-05 REG-08")
class PutDtypesOfClearedRowsKept(MemoryEngine):
    """Counts cleared rows among those that have a field, as long as any other row has it.

    A put of all rows that are left, in another dtype, is refused.
    """

    _held = State(dict[tuple[str, str], tuple[object, set[str]]])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        rows, put = held(self, partition_id)._rows, set(ids)
        dtypes = {
            name: getattr(fields.get(name), "dtype", object)  # type: ignore[union-attr]
            for name in names_of(fields)
        }
        for name, dtype in dtypes.items():
            known, ever = self._held.get((partition_id, name), (dtype, set()))
            if not any(name in row.fields for row in rows.values()):
                self._held.pop((partition_id, name), None)
            elif known != dtype and not ever <= put:
                raise ValueError(f"{name!r} has rows of {known}")
        super().put(partition_id, ids, fields, tags)
        for name, dtype in dtypes.items():
            known, ever = self._held.get((partition_id, name), (dtype, set()))
            self._held[partition_id, name] = (dtype, put | (ever if known == dtype else set()))


@put_mutant("PUT-13", evidence="row", interplay=True, may_fail="PUT-16 REG-04 REG-08 LIFE-07")
def PutCorrectedTakenForRetry(put: MethodCall) -> None:
    """Notes which rows and fields a put overwrites before it is refused for its dtype.

    The corrected put has the same rows and fields. It is taken for a repetition of the first one,
    and only acknowledged.
    """
    names = frozenset(names_of(put.fields))
    known = find_rows(put.plane, put.partition_id, put.sample_ids)
    key = ("sent", put.partition_id, *put.sample_ids, None, *sorted(names))
    overwrites = len(known) == len(put.sample_ids) and all(names <= row.fields for row in known)
    if names and overwrites and put.notes.pop(key, False):
        return
    try:
        put()
    except (ValueError, TypeError):
        put.notes[key] = bool(overwrites)
        raise


@engine_mutant("CLAIM-15", evidence="whole groups", interplay=True, may_fail="CLAIM-02 PUT-16")
class GroupCountsRefusedPut(MemoryEngine):
    """Counts the rows of a group when a put begins, and not back when the put is refused.

    The group is complete then without the row that was refused.
    """

    _counted = State(dict[str, set[str]])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        counted, rows = self._counted.setdefault(partition_id, set()), held(self, partition_id)
        try:
            super().put(partition_id, ids, fields, tags)
        except ValueError:
            if rows._group_size > 1:
                counted.update(i for i in ids if i not in rows._rows)
            raise
        counted.difference_update(ids)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        counted = self._counted.get(partition_id, set())
        counted.difference_update(list(counted) if sample_ids is None else sample_ids)

    def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: float | None
    ) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        partition, counted = held(self, partition_id), self._counted.get(partition_id, set())
        for missing in sorted(counted) if wait_s is None else ():
            uid = missing.rpartition("_g")[0]
            rest = [
                row
                for row in partition._rows.values()
                if row.sample_id.rpartition("_g")[0] == uid
                and task not in row.claimed_by
                and row.fields >= set(names)
            ]
            if rest and len(ids) + len(rest) <= rows:
                mark(partition, rest, task)
                ids, tags = ids + [r.sample_id for r in rest], tags + [dict(r.tags) for r in rest]
        return ids, tags


@engine_mutant("REG-03", evidence="row 0", interplay=True, may_fail="PUT-13 CLEAR-04 REG-08")
class ReadPlansOutliveRegistration(MemoryEngine):
    """Keeps where the rows of a read are, until the partition's count of changes differs.

    A registration for the next step resets the count. A step that is like the last one reads it.
    """

    _changes = State(dict[str, int])
    _plans = State(dict[tuple[object, ...], tuple[int, Any]])

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        self._changes[partition_id] = self._changes.get(partition_id, 0) + 1

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        self._changes[partition_id] = self._changes.get(partition_id, 0) + 1

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        if not held(self, partition_id)._rows:
            self._changes[partition_id] = 0
        super().register(partition_id, tasks, group_size)

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        if len(names) < 2:
            return super().get(partition_id, sample_ids, names)
        key, now = (partition_id, *sample_ids, None, *names), self._changes.get(partition_id, 0)
        with self._locked() as index:
            known, plan = self._plans.get(key, (-1, None))
            if known != now:
                plan = read_plan(index, partition_id, sample_ids, names)
                self._plans[key] = (now, plan)
        batch: TensorDict = read(plan, names, len(sample_ids))
        return batch


@claim_mutant("TAG-01", evidence="expected the tags", interplay=True, may_fail="TAG-02 TAG-03")
def WaitingClaimKeepsFirstTags(claim: MethodCall) -> Claimed:
    """Encodes rows for a claim that waits when they become ready, and misses later stamps."""
    early: dict[str, tuple[IndexRow, dict[str, Any]]] = {}
    if claim.wait_s is not None:
        for row in find_rows(claim.plane, claim.partition_id):
            if row.fields >= set(claim.names) and claim.task not in row.claimed_by:
                early[row.sample_id] = (row, dict(row.tags))
    ids, tags = claim()
    alive = partition_of(claim)._rows
    now = [
        early[i][1] if i in early and early[i][0] is alive.get(i) else newest
        for i, newest in zip(ids, tags, strict=True)
    ]
    return ids, now


@put_mutant("REG-04", evidence="log", interplay=True, may_fail="REG-08")
def PutObjectsKeyedWithoutPartition(put: MethodCall) -> None:
    """Keeps objects by sample id and field: partitions with the same ids share them."""
    put()
    objects = put.notes.setdefault("objects", {})
    for name in names_of(put.fields):
        leaf = put.fields.get(name)
        mine = objects.setdefault(name, set())
        if not is_object_column(leaf):
            mine.discard(put.partition_id)
            continue
        mine.add(put.partition_id)
        given = dict(zip(put.sample_ids, object_rows(leaf, len(put.sample_ids)), strict=True))
        for other in mine - {put.partition_id}:
            rows = find_rows(put.plane, other, put.sample_ids)
            if ids := [row.sample_id for row in rows if name in row.fields]:
                column = TensorDict({name: object_column([given[i] for i in ids])}, [len(ids)])
                put(partition_id=other, sample_ids=ids, fields=column, tags=None)


@register_mutant(
    "REG-03", evidence="rows claimed for", interplay=True, may_fail="CLAIM-15 CLAIM-02"
)
def GroupSizeKeptWithoutOne(register: MethodCall) -> None:
    """Keeps the group size of an empty partition that is registered again without one."""
    before = held(register.plane, register.partition_id)._group_size
    register(group_size=before if register.group_size == 1 else register.group_size)


@put_mutant("PUT-17", evidence="tags that were put alone", may_fail="TAG-03 REG-08")
def TagsAloneUpdateOldRows(put: MethodCall) -> None:
    """Sends tags alone as an update if the first row exists; those of new rows are lost."""
    known = {row.sample_id for row in find_rows(put.plane, put.partition_id, put.sample_ids)}
    if put.fields is not None or not put.tags or put.sample_ids[0] not in known:
        return put()
    pairs = zip(put.sample_ids, put.tags, strict=True)
    kept = [(i, tags) for i, tags in pairs if i in known]
    return put(sample_ids=[i for i, _ in kept], tags=[tags for _, tags in kept])
