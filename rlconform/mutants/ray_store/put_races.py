"""Controllers whose puts take two steps instead of one atomic step.

The correct controller never waits in the middle of a call, so each call is atomic. These
controllers wait for the duration of a second message, and calls of other processes can run in
between.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.index import Index, PartitionIndex
from rlconform.backends.ray_store.controller import Controller, Location, StoredPut, answers
from rlconform.contract import DataPlaneError
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.ray_store.race_helpers import GAP_S, second_message
from rlconform.mutants.types import Ids, Names


def _refuses(index: Index, put: StoredPut, parcel: ColumnBlock) -> bool:
    """Whether the index would refuse the put because of its dtypes."""
    partition = index._partitions.get(put.partition_id) or PartitionIndex()
    try:
        partition.check_kinds(put.sample_ids, extents_of(parcel))
    except ValueError:
        return True
    return False


@controller_mutant(
    "GET-10", evidence="stale-read", may_fail="CLEAR-07 CLAIM-10 REG-06 PUT-22 STAT-01 TAG-07"
)
class PutAcknowledgedBeforeVisible(Controller):
    """Acknowledges a put before its rows are visible, if another put is being stored.

    In the incident, the status update of a put was lost or late while other puts ran: the put had
    returned, but no reader saw its rows (TQ-08).
    """

    _storing = 0
    _later = State(set[asyncio.Task[None]])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if self._storing and not _refuses(self._index, put, parcel):
            later = asyncio.get_running_loop().create_task(self._store(put, parcel, reference))
            self._later.add(later)  # the event loop keeps only a weak reference
            later.add_done_callback(self._later.discard)
            return []
        self._storing += 1
        done = await super().commit(put, parcel, reference)
        await second_message()
        self._storing -= 1
        return done

    async def _store(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> None:
        await second_message(4 * GAP_S)
        await super().commit(put, parcel, reference)


@controller_mutant("PUT-13", evidence="refused", may_fail="CLEAR-07 CLAIM-10 PUT-22 LIFE-05")
class PutRefusedWhileRead(Controller):
    """Refuses to overwrite a row while a client reads it (MC-09)."""

    _readers = State(Counter[tuple[str, str]])

    async def locate(self, partition_id: str, sample_ids: Ids, names: Names) -> list[Location]:
        rows = [(partition_id, sample_id) for sample_id in sample_ids]
        self._readers.update(rows)
        found: list[Location] = await super().locate(partition_id, sample_ids, names)
        await second_message()
        self._readers.subtract(rows)
        return found

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if any(self._readers[put.partition_id, sample_id] for sample_id in put.sample_ids):
            raise DataPlaneError("replica busy: somebody reads the row")
        return await super().commit(put, parcel, reference)


@controller_mutant("PUT-22", evidence="of one put")
class PutVisibleColumnByColumn(Controller):
    """Makes the columns of a put visible one after the other.

    Stores with one object per row and field do this (NR-14, MC-09).
    """

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        names = list(parcel)
        if len(names) < 2 or _refuses(self._index, put, parcel):
            return await super().commit(put, parcel, reference)
        await super().commit(put, {names[0]: parcel[names[0]]}, [])
        for name in names[1:]:
            await second_message()
            await super().commit(replace(put, tags=None), {name: parcel[name]}, [])
        return []


@controller_mutant("REG-06", evidence="refused")
class ClaimSchemaChangesDuringIteration(Controller):
    """Iterates over a partition's schema in several steps, while puts add fields to it.

    The iteration then fails and ends the thread that serves the partition: every later claim on
    the partition fails, as in the incident (NR-16).
    """

    _schemas = State(lambda: defaultdict[str, dict[str, None]](dict))
    _broken = State(set[str])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        self._schemas[put.partition_id].update(dict.fromkeys(parcel))
        return await super().commit(put, parcel, reference)

    @answers
    async def claim(self, partition_id: str, *args: Any) -> Any:
        if partition_id in self._broken:
            raise DataPlaneError("the controller's thread is dead")
        try:
            for _ in self._schemas[partition_id]:
                await asyncio.sleep(0)
        except RuntimeError as error:
            self._broken.add(partition_id)
            raise DataPlaneError(f"the controller's thread died: {error}") from error
        return await super().claim(partition_id, *args)


@controller_mutant("TAG-04", evidence="tags-late")
class ClaimBeforeTags(Controller):
    """Makes the rows claimable, then stores their tags in a second message.

    In the incident, over a third of the claims of a fast-polling consumer had no tags (TQ-04).
    """

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if put.tags is None or not parcel:
            return await super().commit(put, parcel, reference)
        due = await super().commit(replace(put, tags=None), parcel, reference)
        await second_message()
        await super().commit(put, {}, [])
        return due


@controller_mutant("TAG-07", evidence="lost-update")
class ConcurrentStampsLost(Controller):
    """Reads a row's tags, changes them, and writes all of them back in a second step.

    When two processes each add a tag at the same time, one tag is lost.
    """

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if put.tags is None or _refuses(self._index, put, parcel):
            return await super().commit(put, parcel, reference)
        rows = (self._index, put.partition_id, put.sample_ids)
        before = {row.sample_id: dict(row.tags) for row in rows_in(*rows)}
        await second_message()
        done = await super().commit(put, parcel, reference)
        new = dict(zip(put.sample_ids, put.tags, strict=True))
        for row in rows_in(*rows):
            row.tags = {**before.get(row.sample_id, {}), **new[row.sample_id]}
        return done
