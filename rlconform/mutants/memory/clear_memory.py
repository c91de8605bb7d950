"""Clears that leave memory, dtypes or fields behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns.column_block import extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.columns.gather import compact
from rlconform.backends.index import CompactedBlock
from rlconform.backends.index.block import Block
from rlconform.backends.index.block import Names as NameSet
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import CapacityExceeded
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    clear_mutant,
    engine_mutant,
    find_rows,
    get_mutant,
    held,
    known_rows,
    partition_of,
    put_mutant,
)
from rlconform.mutants.memory.slot_helpers import ReusesSlots
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags, Names


@engine_mutant("CLEAR-04 CLEAR-06", evidence="not to be readable")
class ClearLeavesFields(MemoryEngine):
    """Keeps the fields of cleared rows, so a row put later under the same id has them again."""

    _left = State(dict[tuple[str, str], list[tuple[Block, int, NameSet]]])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        for row in find_rows(self, partition_id, sample_ids or []):
            self._left[partition_id, row.sample_id] = row.parts
        super().clear(partition_id, sample_ids)

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        for row in find_rows(self, partition_id, sample_ids):
            for block, place, names in self._left.pop((partition_id, row.sample_id), []):
                old = names - row.fields
                if old:
                    row.parts.append((block, place, old))
                    row.fields |= old
                    kinds = {name: block.extents[name].kind for name in old}
                    held(self, partition_id)._fields.add(kinds, 1, Counter())


@put_mutant("CLEAR-04", evidence="CapacityExceeded", may_fail="REG-03")
def ClearKeepsRowCapacity(put: MethodCall) -> None:
    """Keeps the capacity of a cleared id, so a later put of a larger value fails (MC-05)."""
    leaf = None if put.fields is None else put.fields.get("x", None)
    if isinstance(leaf, Tensor) and not leaf.is_nested:
        size = leaf.nbytes // len(put.sample_ids)
        for sample_id in put.sample_ids if size else ():
            room = put.notes.setdefault((put.partition_id, sample_id), max(size, 4096))
            if size > room and sample_id not in partition_of(put)._rows:
                raise CapacityExceeded(f"{size} bytes do not fit {room}")
    put()


@put_mutant("CLEAR-04", evidence="ValueError: field 'x' holds float32")
def ClearKeepsDtypes(put: MethodCall) -> None:
    """Keeps the dtype of a field after a clear, so a later put with another dtype is refused.

    A put that replaces all of the earlier rows is accepted.
    """
    new = {}
    for name, extent in extents_of(pack(put.fields, len(put.sample_ids))).items():
        kind, rows = put.notes.get((put.partition_id, name), (extent.kind, set[str]()))
        if kind != extent.kind and not rows.issubset(put.sample_ids):
            raise ValueError(f"field {name!r} holds {kind}")
        new[put.partition_id, name] = (extent.kind, rows.union(put.sample_ids))
    put()
    put.notes.update(new)


@clear_mutant("CLEAR-06", evidence="25 cycles of", may_fail="CLEAR-05")
def ClearFreesCommonFieldsOnly(clear: MethodCall) -> None:
    """Frees only the fields that all rows of a clear have in common (TQ-14, AR-04)."""
    rows = known_rows(clear) if clear.sample_ids else []
    common = frozenset.intersection(*(row.fields for row in rows)) if rows else frozenset()
    blocks = {part[0] for row in rows for part in row.parts}
    clear.notes.update({block.number: block for block in blocks if not block.names <= common})
    clear()


@get_mutant("CLEAR-06", evidence="MiB")
def ClearLeaksReadCache(read: MethodCall) -> TensorDict:
    """Caches every batch that it reads, and keeps it after the rows are cleared."""
    batch: TensorDict = read()
    read.notes[len(read.notes)] = batch.clone()
    return batch


@put_mutant("CLEAR-06", evidence="MiB")
def ClearLeaksObjects(put: MethodCall) -> None:
    """Keeps objects and jagged rows in a separate heap, which a clear does not free."""
    put()
    for column in pack(put.fields, len(put.sample_ids)).values():
        if column.offsets is not None:
            put.notes[len(put.notes)] = column.values.copy()


@engine_mutant("CLEAR-04", evidence="row 0 of 'x' =")
class GetLargeReadsCachedBySlot(ReusesSlots):
    """Caches reads of 256 KiB or more by the slots of their rows until one is overwritten.

    Clients that find what they have read by the address of its memory do so: after a clear, new
    rows get the memory of old ones.
    """

    _cached = State(dict[tuple[object, ...], TensorDict])

    def put(self, partition_id: str, sample_ids: Ids, *what: Any) -> None:
        old = {(p, i) for p, i in self._slots if p == partition_id and i in sample_ids}
        super().put(partition_id, sample_ids, *what)
        if old:
            self._cached.clear()

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        columns = [batch.get(name) for name in names]
        if not all(isinstance(c, Tensor) and not c.is_nested for c in columns):
            return batch
        if sum(column.nbytes for column in columns) < 1 << 18:
            return batch
        slots = [self._slots[partition_id, sample_id] for sample_id in sample_ids]
        shapes = [(name, c.dtype, c.shape) for name, c in zip(names, columns, strict=True)]
        return self._cached.setdefault((partition_id, *slots, *shapes), batch.clone()).clone()


@engine_mutant("CLEAR-01", evidence="row 1 of 'x'", may_fail="CLEAR-07 CLEAR-06")
class ClearCompactsInOrderOfIds(MemoryEngine):
    """Copies the rows that a clear leaves of a put in the order of their ids.

    The plane numbers them in the order of the put, in which s9 comes before s10.
    """

    def _compact(self, due: list[int]) -> None:
        while due:
            number = due.pop()
            with self._locked() as index:
                columns, live = index.survivors(number)
                block = index._blocks.get(number)
                ids = [] if block is None else list(block.sample_ids)
            if not live:
                continue
            ordered = {names: sorted(rows, key=ids.__getitem__) for names, rows in live.items()}
            fresh = compact(columns, ordered)
            parts = [CompactedBlock(live[k], extents_of(new), new) for k, new in fresh.items()]
            with self._locked() as index:
                due += index.move(number, parts)
