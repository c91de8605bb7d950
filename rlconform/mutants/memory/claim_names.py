"""Tasks and fields that are known by the beginning of their names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownSample
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, Names

#: Characters of a name that are kept.
KEPT = 63


def _cut(names: Names) -> Names:
    return list(dict.fromkeys(name[:KEPT] for name in names))


@memory_mutant("CLAIM-03", evidence="the task that claimed nothing", may_fail="STAT-03")
class TaskNamesCut(MemoryClient):
    """Cuts the names of tasks at 63 characters, so that two long ones share their claims."""

    def register_partition(
        self,
        partition_id: str,
        fields: Names,
        num_samples: int,
        consumer_tasks: Names,
        *rest: Any,
        **more: Any,
    ) -> None:
        tasks = _cut(consumer_tasks)
        super().register_partition(partition_id, fields, num_samples, tasks, *rest, **more)

    def claim_meta(self, partition_id: str, task_name: str, *rest: Any, **more: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, task_name[:KEPT], *rest, **more)
        return replace(meta, task_name=task_name)

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        return super().check_consumption_status(partition_id, _cut(task_names))


@memory_mutant("CLAIM-01", evidence="rows without the field", may_fail="GET-05 PUT-11 PUT-12")
class FieldNamesCut(MemoryClient):
    """Cuts the names of fields at 63 characters, so that two long ones share their values."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, *rest: Any, **more: Any
    ) -> KVBatchMeta:
        if not isinstance(fields, TensorDict):
            return super().put_samples(sample_ids, partition_id, fields, *rest, **more)
        names = list(map(str, fields.keys()))
        kept = fields.copy()
        for name in names:
            if len(name) > KEPT:
                kept.rename_key_(name, name[:KEPT])
        receipt = super().put_samples(sample_ids, partition_id, kept, *rest, **more)
        return replace(receipt, fields=names)

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        if all(len(name) <= KEPT for name in select_fields):
            return super().get_samples(sample_ids, partition_id, select_fields)
        batch = super().get_samples(sample_ids, partition_id, _cut(select_fields))
        columns = {name: batch.get(name[:KEPT]) for name in select_fields}
        return TensorDict(columns, batch_size=batch.batch_size)

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: Names, *rest: Any, **more: Any
    ) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, task_name, _cut(required_fields), *rest, **more)
        return replace(meta, fields=list(required_fields))


@memory_mutant("CLAIM-01", evidence="was put", may_fail="GET-05 PUT-11 PUT-12")
class FieldNamesArePaths(MemoryClient):
    """Takes a field ``a.b`` for a part of the field ``a``, which a later put of ``a`` replaces."""

    _gone = State(set[tuple[str, str, str]])  # partition, id, field

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, *rest: Any, **more: Any
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, *rest, **more)
        for name in receipt.fields or ():
            self._gone -= {(partition_id, i, name) for i in sample_ids}
            self._gone |= {(partition_id, i, f"{name}.b") for i in sample_ids}
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        lost = {(partition_id, i, name) for i in sample_ids for name in select_fields} & self._gone
        if lost:
            raise UnknownSample(f"no value of {sorted(lost)[0]} was put")
        return super().get_samples(sample_ids, partition_id, select_fields)
