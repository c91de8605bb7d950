"""Decorators for mutants of the memory plane, and access to the state that they change."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlconform.backends.columns.selection import RowSelection
from rlconform.backends.index import Index, IndexRow, PartitionIndex
from rlconform.backends.index import Names as NameSet
from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.backends.memory.client import _capacity
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags, Timeouts
from rlconform.mutants.call import MethodCall, State, replaced
from rlconform.mutants.mutant import Mutant, mutant
from rlconform.mutants.types import Claimed, MaybeBatch, Names

#: A call on the memory plane takes milliseconds, so a call that hangs is detected soon.
IMPATIENT = Timeouts(start=10, operation=3, settle=1, quiet=0.1, check=20)
#: For a defect that shows after hundreds of calls, for which a busy machine may take seconds.
MANY_CALLS = replace(IMPATIENT, check=120)


#: Decorator of a client class with a defect.
memory_mutant = partial(mutant, TARGET, timeouts=IMPATIENT)


def engine_mutant(fails: str, **how: Any) -> Callable[[type[MemoryEngine]], Mutant]:
    """Return a decorator for an engine class with a defect, which the correct client calls."""

    def decorate(engine: type[MemoryEngine]) -> Mutant:
        class Client(MemoryClient):
            def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
                self._engine = engine(_capacity(cfg), bootstrap)

        Client.__name__, Client.__doc__ = engine.__name__, engine.__doc__
        return memory_mutant(fails, **how)(Client)

    return decorate


def call_mutant(
    method: Callable[..., Any],
    fails: str,
    *,
    plane: type[MemoryClient] | type[MemoryEngine] | None = None,
    **how: Any,
) -> Callable[[Callable[[MethodCall], Any]], Mutant]:
    """Return a decorator for a function that replaces one method of the client or engine.

    ``plane`` is a client or engine class without a defect, from which the mutant is derived.
    """
    if plane is None:
        of_engine = vars(MemoryEngine).get(method.__name__) is method
        plane = MemoryEngine if of_engine else MemoryClient

    def decorate(change: Callable[[MethodCall], Any]) -> Mutant:
        mutated: Any = replaced(plane, method, change)
        make = engine_mutant if issubclass(plane, MemoryEngine) else memory_mutant
        return make(fails, **how)(mutated)

    return decorate


# Decorators of a function that replaces the client's method of that name.
put_samples_mutant = partial(call_mutant, MemoryClient.put_samples)
get_samples_mutant = partial(call_mutant, MemoryClient.get_samples)
get_data_mutant = partial(call_mutant, MemoryClient.get_data)
claim_meta_mutant = partial(call_mutant, MemoryClient.claim_meta)
clear_samples_mutant = partial(call_mutant, MemoryClient.clear_samples)
register_partition_mutant = partial(call_mutant, MemoryClient.register_partition)
check_consumption_status_mutant = partial(call_mutant, MemoryClient.check_consumption_status)
# Decorators of a function that replaces the engine's method of that name.
put_mutant = partial(call_mutant, MemoryEngine.put)
get_mutant = partial(call_mutant, MemoryEngine.get)
claim_mutant = partial(call_mutant, MemoryEngine.claim)
wait_until_ready_mutant = partial(call_mutant, MemoryEngine._wait_until_ready)
clear_mutant = partial(call_mutant, MemoryEngine.clear)
register_mutant = partial(call_mutant, MemoryEngine.register)
all_claimed_mutant = partial(call_mutant, MemoryEngine.all_claimed)
close_mutant = partial(call_mutant, MemoryEngine.close)


def claimed_rows(rows: list[IndexRow]) -> Claimed:
    """Return the ids and tags of the rows, as a claim does."""
    return [row.sample_id for row in rows], [dict(row.tags) for row in rows]


def rows_in(index: Index, partition_id: str, sample_ids: Iterable[str] | None) -> list[IndexRow]:
    """Return the rows that exist among ``sample_ids``; None means all rows."""
    partition = index._partitions.get(partition_id)
    known = {} if partition is None else partition._rows
    return [known[i] for i in (known if sample_ids is None else sample_ids) if i in known]


def read_plan(
    index: Index, partition_id: str, sample_ids: list[str], names: list[str]
) -> list[RowSelection]:
    """Return where the fields of these rows are now, for a read that a defect makes later."""
    return [
        RowSelection(
            each.block.payload, each.names, np.array(each.indexes), np.array(each.positions)
        )
        for each in index.locate(partition_id, sample_ids, names)
    ]


def give_back(partition: PartitionIndex, rows: Iterable[IndexRow], task: str) -> None:
    """Let the task claim the rows again."""
    rows = list(rows)
    for row in rows:
        row.claimed_by -= {task}
    partition._claimed[task] -= len(rows)
    partition._queues.feed([(row, row.fields) for row in rows])


def mark(partition: PartitionIndex, rows: Iterable[IndexRow], task: str) -> None:
    """Mark the rows as claimed by the task, except rows that it has claimed already."""
    new = [row for row in rows if task not in row.claimed_by]
    for row in new:
        row.claimed_by |= {task}
    partition._queues.discard(new, task)
    partition._claimed[task] += len(new)


def are_ready(claim: MethodCall, rows: int) -> bool:
    """Whether the task may claim this many rows now."""
    with claim.plane._locked() as index:
        partition = index.partition(claim.partition_id)
        return partition.is_ready(claim.task, frozenset(claim.names), rows)


def changes(wait: MethodCall) -> Iterator[PartitionIndex]:
    """Yield the partition now and after each change; raise ``TimeoutError`` at the timeout."""
    partition = wait.plane._plane.index.partition(wait.partition_id)
    partition.check_exact(wait.rows)
    deadline = time.monotonic() + wait.wait_s
    yield partition
    while wait.plane._plane.changed.wait(max(0.0, deadline - time.monotonic())):
        wait.plane.check_open()
        yield partition
    raise TimeoutError("too few rows")


def claim_by_cursor(claim: MethodCall, cursor: str) -> Claimed:
    """Claim with ``cursor`` in place of the task's cursor; mark the rows as claimed by the task."""
    if claim.task in partition_of(claim)._tasks:
        partition_of(claim)._tasks.add(cursor)
    claimed: Claimed = claim(task=cursor)
    rows = find_rows(claim.plane, claim.partition_id, claimed[0])
    mark(partition_of(claim), rows, claim.task)
    return claimed


def take_back(partition: PartitionIndex, row: IndexRow, names: NameSet) -> None:
    """Mark these fields of a row as never produced."""
    if names:
        row.fields -= names
        partition._fields.drop(Counter([names]))
        partition._queues.discard([row])
        partition._queues.feed([(row, row.fields)])


#: A row with its fields, the tasks that claimed it, and its tags.
Record = tuple[IndexRow, NameSet, NameSet, Tags]


#: Restores a record after a put of fields with these names.
WriteBack = Callable[[PartitionIndex, Record, NameSet], None]


def records(index: Index, partition_id: str, sample_ids: Iterable[str]) -> list[Record]:
    """Return the current record of each row."""
    rows = rows_in(index, partition_id, sample_ids)
    return [(row, row.fields, row.claimed_by, dict(row.tags)) for row in rows]


def fields_of(partition: PartitionIndex, record: Record, names: NameSet) -> None:
    """Restore the fields that the row had, and keep the fields of the put."""
    row, fields, _, _ = record
    take_back(partition, row, row.fields - fields - names)


def claims_of(partition: PartitionIndex, record: Record, names: NameSet) -> None:
    """Restore the set of tasks that have claimed the row."""
    row, _, claimed_by, _ = record
    for task in row.claimed_by - claimed_by if row.fields else ():
        give_back(partition, [row], task)


def stamps_of(partition: PartitionIndex, record: Record, names: NameSet) -> None:
    """Restore the row's tags."""
    row, _, _, tags = record
    if row.fields:
        row.tags = tags


class KnowsDeclared(MemoryClient):
    """A client without a defect that records the declared fields of each partition."""

    declared = State(dict[str, Names])

    def register_partition(self, partition_id: str, fields: Names, *a: Any, **k: Any) -> None:
        super().register_partition(partition_id, fields, *a, **k)
        self.declared[partition_id] = list(fields)


class PrefetchesClaims(MemoryClient):
    """A client that fetches the rows of each claim immediately."""

    _claimed = State(dict[tuple[str, ...], TensorDict])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sample_ids:
            self._claimed = {(meta.partition_id, *meta.sample_ids): super().get_data(meta)}
        return meta

    def fetched(self, meta: Any) -> TensorDict | None:
        """Return the rows fetched at the claim of this meta, or None after a later claim."""
        return self._claimed.get((meta.partition_id, *meta.sample_ids))


#: Rows in one request.
PAGE = 100


def partitions_of(plane: MemoryClient | MemoryEngine) -> dict[str, PartitionIndex]:
    """Return the partitions in the plane of a client or engine, by name."""
    engine = plane if isinstance(plane, MemoryEngine) else plane._engine
    assert isinstance(engine, MemoryEngine), "the plane is in this process"
    return engine._plane.index._partitions


def held(plane: MemoryClient | MemoryEngine, partition_id: str) -> PartitionIndex:
    """Return the state of a partition, or an empty state if the plane does not know it."""
    return partitions_of(plane).get(partition_id) or PartitionIndex()


def partition_of(call: MethodCall) -> PartitionIndex:
    """Return the state of the partition that the call names."""
    return held(call.plane, call.partition_id)


def known_rows(call: MethodCall) -> list[IndexRow]:
    """Return the rows that exist among the call's ``sample_ids``; None means all rows."""
    engine = call.plane if isinstance(call.plane, MemoryEngine) else call.plane._engine
    return find_rows(engine, call.partition_id, call.sample_ids)


def find_rows(
    engine: MemoryEngine, partition_id: str, sample_ids: Iterable[str] | None = None
) -> list[IndexRow]:
    """Return the rows that exist among ``sample_ids``; None means all rows."""
    with engine._locked() as index:
        return rows_in(index, partition_id, sample_ids)


def names_of(fields: MaybeBatch) -> set[str]:
    """Return the names of the columns of a put."""
    return set(map(str, fields.keys())) if isinstance(fields, TensorDict) else set()


def put_placeholder(register: MethodCall, round_trip_s: float) -> None:
    """Declare fields by putting a row, which consumers can claim until it is cleared."""
    if not register.fields or register.grpo_group_size is not None:
        return
    zeros = {name: torch.zeros(1, 1, dtype=torch.uint8) for name in register.fields}
    row = TensorDict(zeros, batch_size=[1])
    try:
        register.plane.put_samples(["__schema__"], register.partition_id, row)
    except ValueError:  # the fields have rows of another dtype, so they are known
        return
    time.sleep(round_trip_s)
    register.plane.clear_samples(["__schema__"], register.partition_id)
    register()
