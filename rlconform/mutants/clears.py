"""Clears that take too much or too little, or leave something of a row behind."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

from tensordict import TensorDict, TensorDictBase

from rlconform.backends.index.block import Block, Names
from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import CapacityExceeded, Tags, UnknownPartition, UnknownSample
from rlconform.mutants.engines import breaks, breaks_engine, rows_in


class _ClearsOthers(MemoryEngine):
    """Clears ``meant(living, sample_ids)``."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            living = dict(partition._rows) if partition is not None else {}
        super().clear(partition_id, self.meant(living, sample_ids))

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """What is cleared in place of ``sample_ids``."""
        raise NotImplementedError


@breaks_engine("CLEAR-01", says="UnknownSample")
class ClearsByPrefix(_ClearsOthers):
    """Deletes the keys that begin with an id: the 10th generation goes with the first."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """The ids, and all that begin with one."""
        return sample_ids and [i for i in living if i.startswith(tuple(sample_ids))]


@breaks_engine(
    "CLEAR-01", says="never put, or cleared", may_fail=("REG-04", "STAT-01", "CLEAR-04", "CLAIM-10")
)
class ClearsARange(_ClearsOthers):
    """Deletes the slots from the first of the ids to the last, as they lie side by side mostly."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """The ids, and all between them."""
        ages = [living[i].age for i in sample_ids or [] if i in living]
        return sample_ids and [
            i for i in living if ages and min(ages) <= living[i].age <= max(ages)
        ]


@breaks_engine("CLEAR-01", says="UnknownSample", may_fail=("CLEAR-02", "CLEAR-05"))
class ClearsNeighboursOfTwice(_ClearsOthers):
    """Deletes by place, one after the other: an id named twice takes the next row along."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """The ids, and the row behind one that is named twice."""
        places, ids = list(living), list(sample_ids or [])
        for sample_id in {i for i in ids if ids.count(i) > 1 and i in living}:
            ids += places[places.index(sample_id) + 1 :][:1]
        return sample_ids and ids


@breaks_engine("CLEAR-02", says="UnknownSample")
class RejectsUnknownIds(MemoryEngine):
    """A clear of a row that isn't there is an error (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows."""
        with self._locked() as index:
            if sample_ids and not rows_in(index, partition_id, sample_ids):
                raise UnknownSample(f"none of {sample_ids} is here")
        super().clear(partition_id, sample_ids)


@breaks_engine("CLEAR-02", says="not to be readable", may_fail=("CLEAR-01",))
class GivesUpAtAnUnknownId(MemoryEngine):
    """A clear of known and unknown ids together does nothing, and says nothing (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows if all are there."""
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids or [])
        if sample_ids is None or len(known) == len(sample_ids):
            super().clear(partition_id, sample_ids)


@breaks("CLEAR-02", says="never put, or cleared", may_fail=("CLEAR-01",))
class TakesNoIdsForAll(MemoryClient):
    """Writes ``if not sample_ids``: an empty list of rows to drop drops them all."""

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Drop rows."""
        super().clear_samples(None if sample_ids == [] else sample_ids, partition_id)


@breaks_engine("CLEAR-03", says="no tag of what was cleared", may_fail=("CLEAR-04",))
class SparesRowsOfTagsAlone(_ClearsOthers):
    """With None it drops the rows that have fields, for these are what it keeps a list of."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """With None, the rows with fields."""
        return [i for i in living if living[i].fields] if sample_ids is None else sample_ids


@breaks_engine("CLEAR-05", says="no tag of the former life")
class LeavesRowsOfTagsBesideOthers(_ClearsOthers):
    """Takes rows out of the columns of a list's rows: those in none of them stay, tags and all."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """Of a list, the rows that have fields, if any has."""
        stored = [i for i in sample_ids or [] if i in living and living[i].fields]
        return stored or sample_ids


@breaks_engine(
    "CLEAR-03", says="not to be readable", may_fail=("CLEAR-01", "CLEAR-04", "REG-03", "CLAIM-10")
)
class SparesTheClaimed(_ClearsOthers):
    """With None it drops what is queued; rows that a task was given are that task's affair."""

    def meant(self, living: dict[str, IndexRow], sample_ids: list[str] | None) -> list[str] | None:
        """With None, the rows that nobody claimed."""
        return [i for i in living if not living[i].claimed_by] if sample_ids is None else sample_ids


@breaks_engine("CLEAR-03", says="UnknownPartition")
class RejectsUnknownPartitions(MemoryEngine):
    """A clear of all in a partition that isn't there is an error (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows."""
        with self._locked() as index:
            if sample_ids is None and partition_id not in index._partitions:
                raise UnknownPartition(partition_id)
        super().clear(partition_id, sample_ids)


@breaks_engine("CLEAR-04", "CLEAR-06", says="not to be readable")
class LeavesOldFields(MemoryEngine):
    """Forgets the row and leaves its fields in the store, where its next life finds them."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: dict[tuple[str, str], list[tuple[Block, int, Names]]] = {}

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, but not where their fields lie."""
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids or []):
                self._left[partition_id, row.sample_id] = row.parts
        super().clear(partition_id, sample_ids)

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put; what the rows had in a former life is there too."""
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                for block, place, names in self._left.pop((partition_id, row.sample_id), []):
                    old = names - row.fields
                    if old:
                        row.parts.append((block, place, old))
                        row.fields |= old
                        index.partition(partition_id)._fields.add(
                            {name: block.extents[name] for name in old}, 1, Counter()
                        )


@breaks_engine("CLEAR-04", says="CapacityExceeded", may_fail=("REG-03",))
class KeepsTheRoomOfARow(MemoryEngine):
    """Gives a cleared id the room that it had, into which a longer value doesn't fit (MC-05)."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._room: dict[tuple[str, str], int] = {}

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, if the values fit where the rows were before."""
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


@breaks_engine("CLEAR-05", "CLEAR-03", says="UnknownSample", may_fail=("STAT-05", "CLEAR-01"))
class RejectsRowsOfTagsAlone(MemoryEngine):
    """A clear looks up which fields to delete, and raises for a row that has none (TQ-13)."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows that have fields."""
        with self._locked() as index:
            if any(not row.fields for row in rows_in(index, partition_id, sample_ids)):
                raise UnknownSample("a row has no fields")
        super().clear(partition_id, sample_ids)


@breaks_engine("CLEAR-06", says="50 cycles of", may_fail=("CLEAR-05",))
class FreesWhatAllRowsHave(MemoryEngine):
    """Frees the fields that all rows of a clear have, and keeps the others (TQ-14, AR-04)."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: list[Block] = []

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, but hold on to blocks of fields that some of them lack."""
        with self._locked() as index:
            rows = rows_in(index, partition_id, sample_ids or [])
            common = frozenset.intersection(*(row.fields for row in rows)) if rows else frozenset()
            parts = {part[0] for row in rows for part in row.parts}
            self._left += [block for block in parts if not block.names <= common]
        super().clear(partition_id, sample_ids)


class _Slotted(MemoryEngine):
    """Gives each row a slot by number, the one freed last first. By itself it is right."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._slots: dict[tuple[str, str], int] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._free: list[int] = []

    def looked_up(self, partition_id: str, sample_ids: list[str], make: bool) -> list[str]:
        """Whose the rows' slots are when a second message of the call has come."""
        with self._locked():
            for key in [(partition_id, i) for i in sample_ids if make]:
                if key not in self._slots:
                    slot = self._free.pop() if self._free else len(self._slots)
                    self._slots[key], self._owners[partition_id, slot] = slot, key[1]
            slots = [self._slots.get((partition_id, i), -1) for i in sample_ids]
        time.sleep(random.random() * 0.004)
        with self._locked():
            owners = self._owners
            return [
                owners.get((partition_id, s), i) for s, i in zip(slots, sample_ids, strict=True)
            ]

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, and free their slots."""
        super().clear(partition_id, sample_ids)
        with self._locked():
            for sample_id in sample_ids or []:
                slot = self._slots.pop((partition_id, sample_id), None)
                if slot is not None:
                    del self._owners[partition_id, slot]
                    self._free.append(slot)


@breaks_engine("CLEAR-07", says="or an error; got bytes of", chance=True)
class ReadsWhatLiesThere(_Slotted):
    """Looks up where rows lie, and reads what lies there by then (TQ-11)."""

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows, in two steps."""
        return super().get(partition_id, self.looked_up(partition_id, sample_ids, False), names)

    def put(self, partition_id: str, sample_ids: list[str], *what: Any) -> None:
        """Put into slots."""
        with self._locked():
            for key in [(partition_id, i) for i in sample_ids]:
                if key not in self._slots:
                    slot = self._free.pop() if self._free else len(self._slots)
                    self._slots[key], self._owners[partition_id, slot] = slot, key[1]
        super().put(partition_id, sample_ids, *what)
