"""Registrations that accept or reject the wrong arguments, or keep earlier state."""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    KnowsDeclared,
    engine_mutant,
    find_rows,
    give_back,
    held,
    mark,
    memory_mutant,
    names_of,
    put_mutant,
    put_samples_mutant,
    register_mutant,
    register_partition_mutant,
)
from rlconform.mutants.types import Names


@put_samples_mutant("REG-01", evidence="'sample_mask' of torch.int32")
def PutDtypeChosenByFieldName(put: MethodCall) -> KVBatchMeta:
    """Chooses a column's dtype by its field name: an integer ``sample_mask`` becomes float."""
    leaf = put.fields.get("sample_mask", None) if names_of(put.fields) else None
    if leaf is None or leaf.dtype is not torch.int32:
        return put()
    return put(fields=put.fields.copy().set("sample_mask", leaf.float()))


@put_mutant("REG-01", evidence="is taken")
def PutCommonFieldNamesRefused(put: MethodCall) -> None:
    """Rejects fields named values, keys or items, because columns are attributes of a record."""
    taken = {"values", "keys", "items"} & names_of(put.fields)
    if taken:
        raise ValueError(f"{taken} is taken")
    put()


def _undeclared(put: MethodCall) -> set[str]:
    return names_of(put.fields).difference(put.plane.declared.get(put.partition_id, ()))


@put_samples_mutant("REG-02", evidence="'pixel_values' is not produced", plane=KnowsDeclared)
def PutUndeclaredImagesDropped(put: MethodCall) -> KVBatchMeta:
    """Silently drops flat image patches of undeclared fields (NR-13, NR-53)."""
    images = {name for name in _undeclared(put) if "pixel" in name}
    patches = {name for name in images if put.fields.get(name).dim() == 2}
    return put(fields=put.fields.exclude(*patches)) if patches else put()


@put_samples_mutant(
    "REG-02",
    evidence="'pixel_values' was not declared",
    may_fail="REG-06 CLAIM-01 STAT-01",
    plane=KnowsDeclared,
)
def PutUndeclaredFieldsRefused(put: MethodCall) -> KVBatchMeta:
    """Rejects fields that the last registration did not declare."""
    for name in _undeclared(put):
        raise ValueError(f"{name!r} was not declared")
    return put()


class RestoresCursors(MemoryClient):
    """A client that restores the cursors of the previous registration if ``restores`` is true."""

    _claimed = State(lambda: defaultdict[str, dict[str, set[str]]](dict))
    _restored = State(dict[str, dict[str, set[str]]])
    _tasks = State(dict[str, Names])

    def register_partition(
        self,
        partition_id: str,
        fields: Names,
        num_samples: int,
        consumer_tasks: Names,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        how = (num_samples, consumer_tasks, *args)
        super().register_partition(partition_id, fields, *how, **kwargs)
        claimed = self._claimed.pop(partition_id, {})
        again = self.restores(self._tasks.get(partition_id, consumer_tasks), consumer_tasks)
        self._restored[partition_id] = claimed if again else {}
        self._tasks[partition_id] = consumer_tasks

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        task = str(meta.task_name)
        had = self._restored.get(partition_id, {}).get(task, ())
        self._claimed[partition_id].setdefault(task, set()).update(meta.sample_ids)
        left = [n for n, sample_id in enumerate(meta.sample_ids) if sample_id not in had]
        return meta.subset(left) if len(left) < len(meta.sample_ids) else meta

    @abstractmethod
    def restores(self, before: Names, now: Names) -> bool:
        """Whether a registration with the tasks ``now`` restores the cursors of ``before``."""


@memory_mutant("REG-03", evidence="rows claimed in step 1")
class RegisterRestoresCursors(RestoresCursors):
    """Restores a task's cursor from the previous registration, so rows put again are skipped."""

    def restores(self, before: Names, now: Names) -> bool:
        return True


@memory_mutant("REG-03", evidence="rows of the second registration")
class RegisterOfOtherTasksKeepsCursors(RestoresCursors):
    """Keeps the cursors of tasks if a registration names other tasks, which it merely adds.

    Planes that create the cursors anew only if the list of tasks is as before do so.
    """

    def restores(self, before: Names, now: Names) -> bool:
        return list(before) != list(now)


@register_partition_mutant(
    "REG-03 CLEAR-03 LIFE-08 STAT-01",
    evidence="schema row exists",
    may_fail="CLEAR-04 REG-04 CLAIM-05",
)
def RegisterTwiceRefused(register: MethodCall) -> None:
    """Rejects a second registration, because it never clears its schema row (NR-18)."""
    register()
    if register.partition_id in register.notes:
        raise RuntimeError("the schema row exists")
    register.notes[register.partition_id] = True


@register_partition_mutant("REG-05", evidence="{'num_samples': -1} to be rejected")
def RegisterAnySizeAccepted(register: MethodCall) -> None:
    """Accepts a negative ``num_samples``, because it never uses the value."""
    negative = isinstance(register.num_samples, int) and register.num_samples < 0
    return register(num_samples=0) if negative else register()


def _once(names: Any) -> Any:
    return list(dict.fromkeys(names)) if isinstance(names, list) else names


@register_partition_mutant(
    "REG-05", evidence="{'consumer_tasks': ['train', 'train']} to be rejected"
)
def RegisterDuplicateTasksMerged(register: MethodCall) -> None:
    """Accepts duplicate task names and merges them."""
    register(consumer_tasks=_once(register.consumer_tasks))


@register_partition_mutant("REG-05", evidence="{'partition_id': ''} to be rejected")
def RegisterEmptyNameAccepted(register: MethodCall) -> None:
    """Accepts an empty partition name."""
    register(partition_id="default" if register.partition_id == "" else register.partition_id)


@register_partition_mutant("REG-05", evidence="{'fields': ['x', 'x']} to be rejected")
def RegisterDuplicateFieldsMerged(register: MethodCall) -> None:
    """Accepts duplicate field names and merges them."""
    register(fields=_once(register.fields))


@put_samples_mutant("REG-06 PUT-12", evidence="no room for another column")
def PutFieldCountLimited(put: MethodCall) -> KVBatchMeta:
    """Rejects more than 32 fields in a partition."""
    columns = put.notes.setdefault(put.partition_id, set())
    columns |= names_of(put.fields)
    if len(columns) > 32:
        raise RuntimeError("no room for another column")
    return put()


class KnowsSizes(MemoryClient):
    """A client without a defect that records the ``num_samples`` of each partition."""

    sizes = State(dict[str, int])

    def register_partition(
        self, partition_id: str, fields: Any, num_samples: int, *args: Any, **kwargs: Any
    ) -> None:
        super().register_partition(partition_id, fields, num_samples, *args, **kwargs)
        self.sizes[partition_id] = num_samples


@put_samples_mutant("REG-07", evidence="full", plane=KnowsSizes)
def PutBeyondNumSamplesRefused(put: MethodCall) -> KVBatchMeta:
    """Refuses rows beyond the registered ``num_samples``, because it has reserved no room."""
    rows = put.notes.setdefault(put.partition_id, set())
    rows.update(put.sample_ids)
    if len(rows) > put.plane.sizes.get(put.partition_id, len(rows)):
        raise ValueError("the partition is full")
    return put()


@register_partition_mutant("REG-08", evidence="rows not claimed before", may_fail="CLAIM-02")
def RegisterForgetsClaims(register: MethodCall) -> None:
    """Gives every row back to every task when its partition is registered again."""
    register()
    engine = register.plane._engine
    with engine._locked() as index:
        partition = index.partition(register.partition_id)
        for task in register.consumer_tasks:
            claimed = [row for row in partition._rows.values() if task in row.claimed_by]
            give_back(partition, claimed, task)


@register_mutant("CLAIM-02", evidence="for a task that had claimed none", may_fail="REG-08")
def RegisterRenumbersTasks(register: MethodCall) -> None:
    """Knows a task by its place in the list, so tasks in another order exchange their claims.

    Planes that keep a row's claims as bits, one for each task, do so.
    """
    with register.plane._locked() as index:
        before = register.notes.get(register.partition_id, register.tasks)
        register()
        register.notes[register.partition_id] = list(register.tasks)
        partition = index.partition(register.partition_id)
        moved = [pair for pair in zip(before, register.tasks, strict=False) if len({*pair}) > 1]
        rows = partition._rows.values()
        claimed = {old: [row for row in rows if old in row.claimed_by] for old, _ in moved}
        for old, _ in moved:
            give_back(partition, claimed[old], old)
        for old, new in moved:
            mark(partition, claimed[old], new)


@engine_mutant("STAT-03", evidence="for a task registered while rows live", may_fail="REG-08")
class StatusOfAddedTaskStartsAtZero(MemoryEngine):
    """Counts for each task the rows that it has still to claim; an added task begins with none.

    It counts as done until it has as many new rows as there were old ones.
    """

    _uncounted = State(dict[tuple[str, str], set[str]])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        rows = {row.sample_id for row in find_rows(self, partition_id)}
        before = set(held(self, partition_id)._tasks) if rows else set(tasks)
        super().register(partition_id, tasks, group_size)
        for task in tasks:
            if task not in before:
                self._uncounted[partition_id, task] = rows
            elif not rows:
                self._uncounted.pop((partition_id, task), None)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        rows = [row for row in find_rows(self, partition_id) if row.fields]
        return super().all_claimed(partition_id, tasks) or any(
            all(row.sample_id in uncounted or task in row.claimed_by for row in rows)
            for task in tasks
            if (uncounted := self._uncounted.get((partition_id, task)))
        )


@engine_mutant("CLAIM-03", evidence="which was added since", may_fail="REG-08 CLAIM-02 STAT-01")
class AddedTaskLacksRowsOfSeveralPuts(MemoryEngine):
    """Lists the rows for an added task from the index of each put, which has whole rows only.

    A row whose fields came in several puts is in none of them.
    """

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        rows = find_rows(self, partition_id)
        added = {*tasks}.difference(held(self, partition_id)._tasks) if rows else ()
        super().register(partition_id, tasks, group_size)
        for task in added:
            mark(held(self, partition_id), [row for row in rows if len(row.parts) > 1], task)


#: Partitions without rows of which a plane keeps the tasks.
IDLE = 64


@engine_mutant("REG-01", evidence="is not registered", may_fail="REG-05 CLAIM-11")
class IdleRegistrationsForgotten(MemoryEngine):
    """Keeps the registrations of the 64 newest partitions without rows, and of all others."""

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        with self._locked() as index:
            idle = [name for name, held in index._partitions.items() if not held.size]
            for name in idle[:-IDLE]:
                del index._partitions[name]
