"""Engines without a defect that record the slot of each row, from which mutants are derived."""

from __future__ import annotations

from collections import defaultdict
from itertools import count
from typing import Any

from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import State
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags


class RowSlots(MemoryEngine):
    """An engine without a defect that gives each row the lowest free slot."""

    _slots = State(dict[str, dict[str, int]])

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


class ReusesSlots(MemoryEngine):
    """An engine without a defect that gives each row the slot that was freed last."""

    _slots = State(dict[tuple[str, str], int])
    _owners = State(dict[tuple[str, int], str])
    _free = State(lambda: defaultdict[str, list[int]](list))  # by partition
    _fresh = State(count)

    def put(self, partition_id: str, sample_ids: Ids, *what: Any) -> None:
        with self._locked():
            for key in [(partition_id, i) for i in sample_ids]:
                if key not in self._slots:
                    free = self._free[partition_id]
                    slot = free.pop() if free else next(self._fresh)
                    self._slots[key], self._owners[partition_id, slot] = slot, key[1]
        super().put(partition_id, sample_ids, *what)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        with self._locked():
            for sample_id in sample_ids or []:
                slot = self._slots.pop((partition_id, sample_id), None)
                if slot is not None:
                    self._owners.pop((partition_id, slot), None)
                    self._free[partition_id].append(slot)
