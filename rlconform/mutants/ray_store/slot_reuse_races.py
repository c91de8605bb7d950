"""Controllers that keep rows in numbered slots and reuse them.

A call looks up the slots of its ids, then reads or writes the slots in a second message. In
between, a slot may be freed and reused for another row.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, Location, StoredPut
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.ray_store.race_helpers import GAP_S, second_message
from rlconform.mutants.types import Ids, Names


class Slotted(Controller):
    """A controller without a defect that gives each row a slot number, last freed first."""

    _slot_of = State(dict[tuple[str, str], int])
    _owner_of = State(dict[tuple[str, int], str])
    _free = State(lambda: defaultdict[str, list[int]](list))
    _fresh = State(itertools.count)

    def _slots(self, partition_id: str, sample_ids: Ids, make: bool) -> list[int | None]:
        slots: list[int | None] = []
        for sample_id in sample_ids:
            slot = self._slot_of.get((partition_id, sample_id))
            if slot is None and make:
                free = self._free[partition_id]
                slot = free.pop() if free else next(self._fresh)
                self._slot_of[partition_id, sample_id] = slot
                self._owner_of[partition_id, slot] = sample_id
            slots.append(slot)
        return slots

    def _owners(self, partition_id: str, slots: list[int | None], sample_ids: Ids) -> list[str]:
        """Return the ids that use the slots now, or the requested id where a slot is unused."""
        return [
            sample_id if slot is None else self._owner_of.get((partition_id, slot), sample_id)
            for slot, sample_id in zip(slots, sample_ids, strict=True)
        ]

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        self._slots(put.partition_id, put.sample_ids, make=True)
        return await super().commit(put, parcel, reference)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        named = sample_ids
        if named is None:
            partition = self._index._partitions.get(partition_id)
            named = partition.rows_of(writer) if partition else []
        done = await super().clear(partition_id, sample_ids, writer)
        for sample_id in named:
            slot = self._slot_of.pop((partition_id, sample_id), None)
            if slot is not None:
                del self._owner_of[partition_id, slot]
                self._free[partition_id].append(slot)
        return done


def _some_gap() -> float:
    """Return a random delay in seconds, so data of two calls may arrive in either order."""
    return 3 * GAP_S * random.random()


@controller_mutant("CLEAR-07", evidence="wrong-row")
class ProcessesGetReadsReusedSlot(Slotted):
    """Looks up the slots of the requested rows, then reads the slots in a second message.

    A clear and a put in between made the read return another row's bytes (TQ-06, TQ-09, TQ-11).
    """

    async def locate(self, partition_id: str, sample_ids: Ids, names: Names) -> list[Location]:
        slots = self._slots(partition_id, sample_ids, make=False)
        await second_message(_some_gap())
        owners = self._owners(partition_id, slots, sample_ids)
        found: list[Location] = await super().locate(partition_id, owners, names)
        return found


@controller_mutant("CLEAR-07", evidence="", may_fail="CLAIM-10")
class ProcessesPutWritesReusedSlot(Slotted):
    """Looks up the slots of the rows to put, then writes to the slots in a second message.

    The bytes overwrite the rows that use the slots by then; no adapter can correct this (TQ-06).
    """

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        slots = self._slots(put.partition_id, put.sample_ids, make=True)
        await second_message(_some_gap())
        owners = self._owners(put.partition_id, slots, put.sample_ids)
        if len(set(owners)) < len(owners):
            owners = put.sample_ids
        return await super().commit(replace(put, sample_ids=owners), parcel, reference)
