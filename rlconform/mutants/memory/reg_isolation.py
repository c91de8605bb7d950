"""Partitions that affect each other: state keyed by id alone, or cleared in all partitions."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns.column_block import extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, UnknownSample
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.column_helpers import is_column
from rlconform.mutants.memory.helpers import (
    all_claimed_mutant,
    claim_meta_mutant,
    clear_mutant,
    clear_samples_mutant,
    engine_mutant,
    find_rows,
    give_back,
    held,
    memory_mutant,
    partition_of,
    partitions_of,
    put_mutant,
    register_mutant,
)
from rlconform.mutants.types import AnyBatch, Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import rows_of


class ByIdAlone(MemoryClient):
    """A plane with a table keyed by id instead of by partition and id."""

    _noted = State(dict[str, Any])

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        gone = held(self, partition_id).sample_ids if sample_ids is None else sample_ids
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


def _claim_by_name(claim: MethodCall, named: Callable[[MethodCall], str]) -> KVBatchMeta:
    """Claim, without ids that another partition's cursor of the same name has claimed."""
    meta: KVBatchMeta = claim()
    left = []
    for n, sample_id in enumerate(meta.sample_ids):
        cursors = claim.plane._noted.setdefault(sample_id, {})
        if cursors.setdefault(named(claim), claim.partition_id) == claim.partition_id:
            left.append(n)
    return meta.subset(left) if len(left) < len(meta.sample_ids) else meta


#: Decorator of a function that returns the name of a claim's cursor.
cursor_name_mutant = applied(claim_meta_mutant, _claim_by_name, plane=ByIdAlone)


@cursor_name_mutant("REG-04", evidence="rows claimed in each partition")
def ClaimsSharedAcrossPartitions(claim: MethodCall) -> str:
    """Marks claimed rows by id alone, so another partition's row with that id is never claimed."""
    return str(claim.task_name)


@cursor_name_mutant("REG-04", evidence="of the other name")
def ClaimCursorNamesTruncated(claim: MethodCall) -> str:
    """Truncates names of cursors to 63 bytes, so partitions with long names share a cursor.

    Databases do so with the names of tables, and Kubernetes with labels.
    """
    return f"{claim.task_name}_{claim.partition_id}"[:63]


@clear_samples_mutant("REG-04", evidence="tags")
def ClearTagsInAllPartitions(clear: MethodCall) -> None:
    """Clears the tags of the same ids in every other partition too."""
    clear()
    for partition in partitions_of(clear.plane).values():
        for sample_id in clear.sample_ids or ():
            if sample_id in partition._rows:
                partition._rows[sample_id].tags = {}


def _register_and_reset(register: MethodCall, resets: Callable[[MethodCall, str], bool]) -> None:
    """Register, and reset the claims of other partitions for which ``resets`` is true."""
    with register.plane._locked() as index:
        due = [p for p in index._partitions if p != register.partition_id and resets(register, p)]
        register()
        for partition in (index._partitions[name] for name in due):
            for task in partition._tasks:
                rows = [r for r in partition._rows.values() if task in r.claimed_by]
                give_back(partition, rows, task)


#: Decorator of a function that returns whether a registration resets another partition.
reset_mutant = applied(register_mutant, _register_and_reset)


@reset_mutant("REG-04", evidence="after the other partition was registered again")
def RegisterResetsAllPartitions(register: MethodCall, name: str) -> bool:
    """Resets the claims of all other partitions when a partition is registered again."""
    return register.partition_id in partitions_of(register.plane)


@reset_mutant("REG-04", evidence="whose name begins with the other's")
def RegisterResetsPartitionsByPrefix(register: MethodCall, name: str) -> bool:
    """Resets the claims of partitions by prefix when an empty partition is registered again.

    Planes on key-value stores that delete cursors by a pattern such as ``train*`` do so.
    """
    known = register.partition_id in partitions_of(register.plane)
    return known and not partition_of(register)._rows and name.startswith(register.partition_id)


@put_mutant("REG-04", evidence="must replace all of them")
def PutSchemaSharedAcrossPartitions(put: MethodCall) -> None:
    """Shares field dtypes between partitions, so train and val can't use different ones."""
    extents = extents_of(pack(put.fields, len(put.sample_ids)))
    with put.plane._locked() as index:
        for other, partition in index._partitions.items():
            if other != put.partition_id:
                partition.check_kinds([], extents)
    put()


@clear_mutant("REG-04", evidence="never put, or cleared")
def ClearPartitionsByPrefix(clear: MethodCall) -> None:
    """Clears partitions by prefix, so clearing train also clears train_async."""
    clear()
    for other in list(partitions_of(clear.plane)) if clear.sample_ids is None else []:
        if other.startswith(clear.partition_id):
            clear(partition_id=other)


@clear_mutant("REG-04", evidence="never put, or cleared")
def ClearPartitionsBelowPath(clear: MethodCall) -> None:
    """Clears the range of keys that begin with the partition and a slash: train/math with train."""
    clear()
    for other in list(partitions_of(clear.plane)) if clear.sample_ids is None else []:
        if other.startswith(f"{clear.partition_id}/"):
            clear(partition_id=other)


@all_claimed_mutant("REG-04", evidence="whatever the other holds", may_fail="STAT-01")
def StatusCountsAllPartitions(status: MethodCall) -> bool:
    """Counts the rows of all partitions, so train is not consumed while val has unclaimed rows."""
    with status.plane._locked() as index:
        return status() and all(
            not partition._produced or partition.all_claimed(status.tasks)
            for partition in index._partitions.values()
            if partition._tasks.issuperset(status.tasks)
        )


#: Bytes of a row that is stored by its content.
BY_CONTENT = 256


def _contents(batch: AnyBatch) -> set[bytes]:
    """Return the bytes of the batch's large rows."""
    leaves = [] if batch is None else list(batch.values())
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and is_column(leaf)]
    rows = [row.detach().cpu() for leaf in tensors for row in rows_of(leaf)]
    large = [row.contiguous().view(-1) for row in rows if row.nbytes > BY_CONTENT]
    return {row.view(torch.uint8).numpy().tobytes() for row in large}


@engine_mutant("REG-04", evidence="is freed")
class ClearFreesEqualRowsOfOthers(MemoryEngine):
    """Stores equal rows once, and frees them when the last row of one partition is gone.

    Rows of other partitions that are equal to a cleared or overwritten row are lost.
    """

    _freed = State(set[bytes])

    def _held(self, partition_id: str, sample_ids: Ids | None) -> set[bytes]:
        held: set[bytes] = set()
        for row in find_rows(self, partition_id, sample_ids):
            if row.fields:
                held |= _contents(super().get(partition_id, [row.sample_id], sorted(row.fields)))
        return held

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        self._freed -= _contents(fields)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        gone = self._held(partition_id, sample_ids)
        super().clear(partition_id, sample_ids)
        if gone:
            self._freed |= gone - self._held(partition_id, None)

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        if self._freed and self._freed & _contents(batch):
            raise UnknownSample("the content of a row is freed")
        return batch


@clear_mutant("REG-04", evidence="no sample", may_fail="CLEAR-03 CLEAR-01")
def ClearOfNoneByPattern(clear: MethodCall) -> None:
    """Clears by None all partitions whose name fits as a pattern: ``_`` is any character."""
    clear()
    if clear.sample_ids is None:
        pattern = re.compile(re.escape(clear.partition_id).replace("_", ".").replace("%", ".*"))
        for name in list(partitions_of(clear.plane)):
            if pattern.fullmatch(name):
                clear(partition_id=name)


#: Partitions whose claims the plane keeps at a time.
_KNOWN_CLAIMS = 64


@claim_meta_mutant("REG-04", evidence="claimed again in partition 0")
def ClaimsOfOtherPartitionsForgotten(claim: MethodCall) -> KVBatchMeta:
    """Forgets all claims of a partition once rows of 64 others were claimed.

    Stores that find the rows of a partition again, and not their claims, do so.
    """
    claim.notes.pop(claim.partition_id, None)
    claim.notes[claim.partition_id] = True
    if len(claim.notes) > _KNOWN_CLAIMS:
        forgotten = next(iter(claim.notes))
        del claim.notes[forgotten]
        partition = held(claim.plane, forgotten)
        rows = [row for row in partition._rows.values() if row.fields]
        for task in list(partition._claimed):
            give_back(partition, [row for row in rows if task in row.claimed_by], task)
    meta: KVBatchMeta = claim()
    return meta
