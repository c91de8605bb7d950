"""Partitions that affect each other: state keyed by id alone, or cleared in all partitions."""

from __future__ import annotations

from typing import Any

from rlconform.backends.columns.column_block import extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.helpers import (
    engine_mutant,
    give_back,
    held,
    memory_mutant,
    partitions_of,
)
from rlconform.mutants.types import AnyBatch, Ids, MaybeBatch, MaybeTags, Names


class ByIdAlone(MemoryClient):
    """A plane with a table keyed by id instead of by partition and id."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._noted: dict[str, Any] = {}

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        gone = sample_ids
        if gone is None:
            gone = held(self, partition_id).rows_of("")
        super().clear_samples(sample_ids, partition_id)
        for sample_id in gone:
            self._noted.pop(sample_id, None)


@memory_mutant("REG-04", evidence="tags in that partition")
class TagsSharedAcrossPartitions(ByIdAlone):
    """Stores tags by id alone, so partitions overwrite each other's tags."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for sample_id, row in zip(sample_ids, tags or [], strict=False):
            self._noted[sample_id] = self._noted.get(sample_id, {}) | row
        return receipt

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        for sample_id, row in zip(meta.sample_ids, meta.tags or [], strict=True):
            row.update(self._noted.get(sample_id, {}))
        return meta


@memory_mutant("REG-04", evidence="rows claimed in each partition")
class ClaimsSharedAcrossPartitions(ByIdAlone):
    """Marks claimed rows by id alone, so another partition's row with that id is never claimed."""

    def claim_meta(
        self, partition_id: str, task_name: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, task_name, *args, **kwargs)
        left = []
        for n, sample_id in enumerate(meta.sample_ids):
            tasks = self._noted.setdefault(sample_id, {})
            if tasks.setdefault(task_name, partition_id) == partition_id:
                left.append(n)
        return meta.subset(left) if len(left) < len(meta.sample_ids) else meta


@memory_mutant("REG-04", evidence="tags")
class ClearTagsInAllPartitions(MemoryClient):
    """Clears the tags of the same ids in every other partition too."""

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for partition in partitions_of(self).values():
            for sample_id in sample_ids or ():
                if sample_id in partition._rows:
                    partition._rows[sample_id].tags = {}


@engine_mutant("REG-04", evidence="after the other partition was registered again")
class RegisterResetsAllPartitions(MemoryEngine):
    """Resets the claims of every other partition when one is registered again."""

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        with self._locked() as index:
            known = partition_id in index._partitions
            super().register(partition_id, tasks, group_size)
            for name, partition in index._partitions.items():
                for task in partition._tasks if known and name != partition_id else ():
                    rows = [r for r in partition._rows.values() if task in r.claimed_by]
                    give_back(partition, rows, task)


@engine_mutant("REG-04", evidence="must replace all of them")
class PutSchemaSharedAcrossPartitions(MemoryEngine):
    """Shares field dtypes between partitions, so train and val can't use different ones."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        extents = extents_of(pack(fields, len(sample_ids)))
        with self._locked() as index:
            for other, partition in index._partitions.items():
                if other != partition_id:
                    partition.check_kinds([], extents)
        super().put(partition_id, sample_ids, fields, tags)


@engine_mutant("REG-04", evidence="never put, or cleared")
class ClearPartitionsByPrefix(MemoryEngine):
    """Clears partitions by prefix, so clearing train also clears train_async."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        with self._locked() as index:
            others = [name for name in index._partitions if name.startswith(partition_id)]
        for other in others if sample_ids is None else []:
            super().clear(other, None)


@engine_mutant("REG-04", evidence="whatever the other holds", may_fail=("STAT-01",))
class StatusCountsAllPartitions(MemoryEngine):
    """Counts the rows of all partitions, so train is not consumed while val has unclaimed rows."""

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        with self._locked() as index:
            return super().all_claimed(partition_id, tasks) and all(
                not partition._produced or partition.all_claimed(tasks)
                for partition in index._partitions.values()
                if partition._tasks.issuperset(tasks)
            )
