"""Decorators for mutants of the memory plane, and access to the state that they change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from tensordict import TensorDict

from rlconform.backends.index import Index, IndexRow, PartitionIndex
from rlconform.backends.index import Names as NameSet
from rlconform.backends.memory import TARGET, MemoryClient
from rlconform.backends.memory.client import _capacity
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags, Timeouts
from rlconform.mutants.mutant import Mutant, mutant
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeBatch, MaybeTags, Names

#: A call on the memory plane takes milliseconds, so a call that hangs is detected soon.
IMPATIENT = Timeouts(start=10, operation=3, settle=1, quiet=0.1, check=20)


#: The decorator of a client class with a defect.
memory_mutant = partial(mutant, TARGET, timeouts=IMPATIENT)


def engine_mutant(*fails: str, **how: Any) -> Callable[[type[MemoryEngine]], Mutant]:
    """The decorator of an engine class with a defect; its client is correct."""

    def decorate(engine: type[MemoryEngine]) -> Mutant:
        class Client(MemoryClient):
            def __init__(
                self, cfg: Mapping[str, Any] | None = None, bootstrap: bool = True
            ) -> None:
                self._engine = engine(_capacity(cfg), bootstrap)

        Client.__name__, Client.__doc__ = engine.__name__, engine.__doc__
        return memory_mutant(*fails, **how)(Client)

    return decorate


def claimed_rows(rows: list[IndexRow]) -> Claimed:
    """What a claim returns for the rows."""
    return [row.sample_id for row in rows], [dict(row.tags) for row in rows]


class RowSlots(MemoryEngine):
    """An engine that gives each row the lowest free slot, without a defect."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._slots: dict[str, dict[str, int]] = {}

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            taken = self._slots.setdefault(partition_id, {})
            living = index.partition(partition_id)._rows
            for sample_id in taken.keys() - living:
                del taken[sample_id]
            for sample_id in sample_ids:
                free = min(set(range(len(taken) + 1)) - set(taken.values()))
                taken.setdefault(sample_id, free)


class TracksClears(MemoryClient):
    """A client that records which rows were cleared."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gone: set[tuple[str, str]] = set()

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._gone.difference_update((partition_id, i) for i in sample_ids)
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._gone.update((partition_id, i) for i in sample_ids or ())


def rows_in(index: Index, partition_id: str, sample_ids: Iterable[str] | None) -> list[IndexRow]:
    """The rows that exist among ``sample_ids``, or all rows if it is None."""
    partition = index._partitions.get(partition_id)
    known = {} if partition is None else partition._rows
    return [known[i] for i in (known if sample_ids is None else sample_ids) if i in known]


def give_back(partition: PartitionIndex, rows: Iterable[IndexRow], task: str) -> None:
    """Let the task claim the rows again."""
    rows = list(rows)
    for row in rows:
        row.claimed_by -= {task}
    partition._claimed[task] -= len(rows)
    partition._queues.feed([(row, row.fields) for row in rows])


def mark(partition: PartitionIndex, rows: Iterable[IndexRow], task: str) -> None:
    """Count the rows as claimed by the task, if they are not yet."""
    new = [row for row in rows if task not in row.claimed_by]
    for row in new:
        row.claimed_by |= {task}
    partition._queues.discard(new, task)
    partition._claimed[task] += len(new)


def take_back(partition: PartitionIndex, row: IndexRow, names: NameSet) -> None:
    """Count these fields of a row as never produced."""
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
    """The current record of each row."""
    rows = rows_in(index, partition_id, sample_ids)
    return [(row, row.fields, row.claimed_by, dict(row.tags)) for row in rows]


def fields_of(partition: PartitionIndex, record: Record, names: NameSet) -> None:
    """Restore the row's fields, plus those of the put."""
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


class PrefetchesClaims(MemoryClient):
    """A client that fetches the rows of each claim immediately."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._claimed: dict[tuple[str, ...], TensorDict] = {}

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sample_ids:
            fetched = super().get_data(meta)
            self._claimed = {(meta.partition_id, *meta.sample_ids): fetched}
        return meta

    def fetched(self, meta: Any) -> TensorDict | None:
        """The rows fetched with the claim that returned this meta, if it was the last one."""
        return self._claimed.get((meta.partition_id, *meta.sample_ids))


class Registering(MemoryClient):
    """A plane that records how often and with which fields each partition was registered."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lives: dict[str, int] = {}
        self._declared: dict[str, list[str]] = {}

    def register_partition(
        self,
        partition_id: str,
        fields: Names,
        num_samples: int,
        consumer_tasks: Names,
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        super().register_partition(
            partition_id, fields, num_samples, consumer_tasks, grpo_group_size, enums
        )
        self._lives[partition_id] = self._lives.get(partition_id, 0) + 1
        self._declared[partition_id] = list(fields)


#: Rows in one request.
PAGE = 100


def partitions_of(client: MemoryClient) -> dict[str, PartitionIndex]:
    """The partitions in a client's plane."""
    engine = client._engine
    assert isinstance(engine, MemoryEngine), "the plane is in this process"
    return engine._plane.index._partitions


def held(client: MemoryClient, partition_id: str) -> PartitionIndex:
    """The state of a partition in a client's plane."""
    return partitions_of(client).get(partition_id) or PartitionIndex()


class Writing(MemoryClient):
    """A plane whose puts can drop rows."""

    def forget(self, sample_ids: Ids, partition_id: str) -> None:
        """Drop rows, even if another process put them."""
        MemoryClient.clear_samples(self, sample_ids, partition_id)


def names_of(fields: MaybeBatch) -> set[str]:
    """The names of the columns of a put."""
    return set(map(str, fields.keys())) if isinstance(fields, TensorDict) else set()
