"""Repeated reads of the same rows that share what they return, or fail as the first ones did."""

from __future__ import annotations

import threading
from collections import Counter

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns.encode import read
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownPartition
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.column_helpers import is_dense
from rlconform.mutants.memory.helpers import (
    engine_mutant,
    find_rows,
    get_mutant,
    memory_mutant,
    read_plan,
)
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags, Names


def _equal(one: TensorDict, other: TensorDict) -> bool:
    pairs = [(one.get(name), other.get(name)) for name in map(str, one.keys())]
    return all(a.dtype is b.dtype and torch.equal(a, b) for a, b in pairs)


@get_mutant("GET-13", evidence="row 0 of 'x' =", may_fail="PUT-09")
def GetKeepsSecondReadItself(read: MethodCall) -> TensorDict:
    """Keeps a batch that is read a second time, and copies it for later readers.

    The second reader has the kept batch itself, so what it changes shows in all later reads.
    """
    batch: TensorDict = read()
    if not all(isinstance(leaf, Tensor) and is_dense(leaf) for leaf in batch.values()):
        return batch
    key = (read.partition_id, *read.names, None, *read.sample_ids)
    stored, kept = read.notes.get(key, (None, None))
    if stored is None or not _equal(stored, batch):
        read.notes[key] = (batch.clone(), None)
        return batch
    if kept is None:
        read.notes[key] = (stored, batch)
        return batch
    again: TensorDict = kept.clone()
    return again


#: Failures in a row after which a read is remembered as failing.
FAILURES = 3


@engine_mutant("GET-05", evidence="not produced", may_fail="GET-10 PUT-12 REG-02")
class GetRemembersFailedReads(MemoryEngine):
    """Answers a read that has failed three times with the same error until a row is created.

    A put that adds the missing column to rows that exist changes nothing.
    """

    _failed = State(dict[tuple[object, ...], list[LookupError]])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        key = (partition_id, *names, None, *sample_ids)
        errors = self._failed.setdefault(key, [])
        if len(errors) >= FAILURES:
            raise type(errors[0])(*errors[0].args)
        try:
            batch = super().get(partition_id, sample_ids, names)
        except LookupError as error:
            errors.append(error)
            raise
        del self._failed[key]
        return batch

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        new = len(find_rows(self, partition_id, sample_ids)) < len(sample_ids)
        super().put(partition_id, sample_ids, fields, tags)
        if new:
            self._failed.clear()


@get_mutant("GET-04", evidence="was never registered")
def GetRemembersUnknownPartitions(read: MethodCall) -> TensorDict:
    """Remembers which partitions were unknown, and does not see that they are registered later."""
    unknown: dict[str, UnknownPartition] = read.notes
    if read.partition_id in unknown:
        raise unknown[read.partition_id]
    try:
        batch: TensorDict = read()
    except UnknownPartition as error:
        unknown[read.partition_id] = error
        raise
    return batch


@engine_mutant("GET-06", evidence="cleared row", may_fail="CLEAR-01 GET-10")
class ReadPlanKeptByThread(MemoryEngine):
    """Keeps where the rows of a thread's last read are, until a put; a clear drops its own only.

    A thread that reads the same rows again still gets those that another thread has cleared.
    """

    _puts = State(Counter[str])

    def put(self, partition_id: str, ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        self._puts[partition_id] += 1

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._puts[partition_id] += 1

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        _OF_THREAD.plan = None
        super().clear(partition_id, sample_ids)

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        key = (id(self), self._puts[partition_id], partition_id, *sample_ids, None, *names)
        known, plan = getattr(_OF_THREAD, "plan", None) or (None, None)
        if known != key:
            with self._locked() as index:
                plan = read_plan(index, partition_id, sample_ids, names)
            _OF_THREAD.plan = key, plan
        batch: TensorDict = read(plan or [], names, len(sample_ids))
        return batch


#: What each thread keeps: its last read, and where the rows of it are.
_OF_THREAD = threading.local()


@memory_mutant("GET-03", evidence="fields of a read", may_fail="GET-11")
class ReadPlansKnownByList(MemoryClient):
    """Remembers a read by the list of its fields, which the caller may have changed."""

    _plans = State(dict[str, tuple[Names, Names]])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        asked, names = self._plans.get(partition_id, ([], []))
        if asked is not select_fields or not select_fields:
            names = list(select_fields)
            self._plans[partition_id] = select_fields, names
        return super().get_samples(sample_ids, partition_id, names)
