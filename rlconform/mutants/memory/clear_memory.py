"""Clears that leave memory, dtypes or fields behind."""

from __future__ import annotations

from collections import Counter

from tensordict import TensorDict

from rlconform.backends.columns.column_block import Bytes, extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.index.block import Block
from rlconform.backends.index.block import Names as NameSet
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import CapacityExceeded
from rlconform.mutants.memory.helpers import engine_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags, Names


@engine_mutant("CLEAR-04", "CLEAR-06", evidence="not to be readable")
class ClearLeavesFields(MemoryEngine):
    """Keeps the fields of cleared rows, so a row put later under the same id has them again."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: dict[tuple[str, str], list[tuple[Block, int, NameSet]]] = {}

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids or []):
                self._left[partition_id, row.sample_id] = row.parts
        super().clear(partition_id, sample_ids)

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                for block, place, names in self._left.pop((partition_id, row.sample_id), []):
                    old = names - row.fields
                    if old:
                        row.parts.append((block, place, old))
                        row.fields |= old
                        index.partition(partition_id)._fields.add(
                            {name: block.extents[name].kind for name in old}, 1, Counter()
                        )


@engine_mutant("CLEAR-04", evidence="CapacityExceeded", may_fail=("REG-03",))
class ClearKeepsRowCapacity(MemoryEngine):
    """Keeps the capacity of a cleared id, so a later put of a larger value fails (MC-05)."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._room: dict[tuple[str, str], int] = {}

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        leaf = None if fields is None else fields.get("x", None)
        size = 0
        if leaf is not None and hasattr(leaf, "nbytes") and not leaf.is_nested and sample_ids:
            size = leaf.nbytes // len(sample_ids)
        with self._locked() as index:
            living = {row.sample_id for row in rows_in(index, partition_id, sample_ids)}
            for sample_id in sample_ids if size else []:
                room = self._room.setdefault((partition_id, sample_id), max(size, 4096))
                if sample_id not in living and size > room:
                    raise CapacityExceeded(f"{size} bytes do not fit {room}")
        super().put(partition_id, sample_ids, fields, tags)


@engine_mutant("CLEAR-04", evidence="ValueError: field 'x' holds float32")
class ClearKeepsDtypes(MemoryEngine):
    """Keeps the dtype of a field after a clear, so a step with another dtype is refused.

    A put that replaces all of the earlier rows is accepted.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._known: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        new = {}
        for name, extent in extents_of(pack(fields, len(sample_ids))).items():
            kind, rows = self._known.get((partition_id, name), (extent.kind, set[str]()))
            if kind != extent.kind and not rows.issubset(sample_ids):
                raise ValueError(f"field {name!r} holds {kind}")
            new[partition_id, name] = (extent.kind, rows.union(sample_ids))
        super().put(partition_id, sample_ids, fields, tags)
        self._known |= new


@engine_mutant("CLEAR-06", evidence="50 cycles of", may_fail=("CLEAR-05",))
class ClearFreesCommonFieldsOnly(MemoryEngine):
    """Frees only the fields that all rows of a clear have in common (TQ-14, AR-04)."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: list[Block] = []

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            rows = rows_in(index, partition_id, sample_ids or [])
            common = frozenset.intersection(*(row.fields for row in rows)) if rows else frozenset()
            parts = {part[0] for row in rows for part in row.parts}
            self._left += [block for block in parts if not block.names <= common]
        super().clear(partition_id, sample_ids)


@engine_mutant("CLEAR-06", evidence="MiB")
class ClearLeaksReadCache(MemoryEngine):
    """Caches every batch that it reads, and keeps it after the rows are cleared."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._cache: list[TensorDict] = []

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        self._cache.append(batch.clone())
        return batch


@engine_mutant("CLEAR-06", evidence="MiB")
class ClearLeaksObjects(MemoryEngine):
    """Keeps objects and jagged rows in a separate heap, which a clear does not free."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._heap: list[Bytes] = []

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        columns = pack(fields, len(sample_ids)).values()
        self._heap += [column.values.copy() for column in columns if column.offsets is not None]
