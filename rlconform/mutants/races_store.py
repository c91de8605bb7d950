"""Controllers of ``ray_store`` that do in two steps what has to be one.

The right controller never waits in the middle of a call, so each call is atomic. These wait: for as
long as a second message of the same call would take to come. What others do meanwhile is the race.
"""

# ruff: noqa: D102 - a method does what the right one does, but for what its class says

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from typing import Any

import ray

from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.index import Index
from rlconform.backends.index.row import IndexRow
from rlconform.backends.ray_store.controller import (
    Controller,
    Location,
    Refusal,
    StoredPut,
    answers,
)
from rlconform.contract import DataPlaneError, Tags

#: Seconds that the second step takes to be sent off, at the least, on one host.
GAP_S = 0.002


async def second_message(seconds: float = GAP_S) -> None:
    """Come to the second step: on a busy machine its message takes as long as any other."""
    await asyncio.sleep(seconds)
    await ray.get_runtime_context().current_actor.ready.remote()


class TagsAfterFields(Controller):
    """Makes the rows claimable, then stores the tags."""

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if put.tags is None or not parcel:
            return await super().commit(put, parcel, reference)
        due = await super().commit(_with_tags(put, None), parcel, reference)
        await second_message()
        await super().commit(put, {}, [])
        return due


class ColumnByColumn(Controller):
    """Stores the columns of a put one after the other (NR-14)."""

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        names = list(parcel)
        if len(names) < 2 or _refuses(self._index, put, parcel):
            return await super().commit(put, parcel, reference)
        await super().commit(put, {names[0]: parcel[names[0]]}, [])
        for name in names[1:]:
            await second_message()
            await super().commit(_with_tags(put, None), {name: parcel[name]}, [])
        return []


class BusyWhileRead(Controller):
    """Refuses to overwrite a row that somebody is reading (MC-09)."""

    def __init__(self, capacity: int | None) -> None:
        super().__init__(capacity)
        self._readers: Counter[tuple[str, str]] = Counter()

    async def locate(
        self, partition_id: str, sample_ids: list[str], names: list[str]
    ) -> list[Location]:
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


class AcknowledgedEarly(Controller):
    """Answers a put that comes while another one is being stored before its rows are visible."""

    def __init__(self, capacity: int | None) -> None:
        super().__init__(capacity)
        self._storing = 0
        self._later: set[asyncio.Task[None]] = set()

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if self._storing and not _refuses(self._index, put, parcel):
            later = asyncio.get_running_loop().create_task(self._store(put, parcel, reference))
            self._later.add(later)  # the loop itself holds on to it weakly
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


class ChoosesThenMarks(Controller):
    """Chooses the rows of a claim, and marks them as claimed in a second step."""

    def __init__(self, capacity: int | None) -> None:
        super().__init__(capacity)
        self._chosen: dict[tuple[str, str, tuple[str, ...]], Any] = {}

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        key = (partition_id, task, tuple(names))
        if key in self._chosen and wait_s is None:  # they are not marked yet: choose them as well
            sample_ids, tags = self._chosen[key]
            return sample_ids[:rows], tags[:rows]
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if wait_s is None and isinstance(claimed, tuple) and claimed[0]:
            self._chosen[key] = claimed
            await second_message()
            del self._chosen[key]
        return claimed


class LooksUpKeysLater(Controller):
    """Claims internal indexes, and looks up which ids they have in a second step."""

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if not isinstance(claimed, tuple) or not claimed[0]:
            return claimed
        await second_message()
        known = self._index.partition(partition_id)
        return [None if known.count_new([i]) else i for i in claimed[0]], claimed[1]


class DropsClaimOfClearedRow(Controller):
    """Marks rows as claimed, then gives up the whole claim if one of them was cleared."""

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if not isinstance(claimed, tuple) or not claimed[0]:
            return claimed
        await second_message()
        gone = self._index.partition(partition_id).count_new(claimed[0])
        return ([], []) if gone else claimed


class ReplacesTags(Controller):
    """Reads a row's tags, changes them, and writes all of them back in a second step."""

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if put.tags is None or _refuses(self._index, put, parcel):
            return await super().commit(put, parcel, reference)
        before = [dict(row.tags) if row else {} for row in self._rows(put)]
        await second_message()
        done = await super().commit(put, parcel, reference)
        for row, old, new in zip(self._rows(put), before, put.tags, strict=True):
            if row is not None:
                row.tags = {**old, **new}
        return done

    def _rows(self, put: StoredPut) -> list[IndexRow | None]:
        partition = self._index._partitions.get(put.partition_id)
        return [partition._rows.get(i) if partition else None for i in put.sample_ids]


class CountsInTwoSteps(Controller):
    """Counts rows put and rows claimed; each count is read and written back in two steps."""

    def __init__(self, capacity: int | None) -> None:
        super().__init__(capacity)
        self._counting: set[str] = set()
        self._missed: Counter[str] = Counter()

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        partition = self._index._partitions.get(put.partition_id)
        new = partition.count_new(put.sample_ids) if partition and parcel else 0
        done = await super().commit(put, parcel, reference)
        await self._count(put.partition_id, new)
        return done

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if isinstance(claimed, tuple):
            await self._count(f"{partition_id}/{task}", len(claimed[0]))
        return claimed

    @answers
    async def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        if not any(self._missed[name] for name in (partition_id, *_cursors(partition_id, tasks))):
            return self._index.all_claimed(partition_id, tasks)
        partition = self._index.partition(partition_id)
        produced = partition._produced - self._missed[partition_id]
        claimed = [
            partition._claimed[task] - self._missed[cursor]
            for task, cursor in zip(tasks, _cursors(partition_id, tasks), strict=True)
        ]
        return all(count == produced for count in claimed)

    async def clear(self, partition_id: str, sample_ids: list[str] | None, writer: str) -> Any:
        for name in [n for n in self._missed if n.partition("/")[0] == partition_id]:
            del self._missed[name]  # a clear counts anew
        return await super().clear(partition_id, sample_ids, writer)

    async def _count(self, name: str, rows: int) -> None:
        """Add rows; what comes while another one adds to the same count is overwritten."""
        if name in self._counting:
            self._missed[name] += rows
        elif rows:
            self._counting.add(name)
            await second_message()
            self._counting.discard(name)


def _cursors(partition_id: str, tasks: list[str]) -> list[str]:
    return [f"{partition_id}/{task}" for task in tasks]


class SchemaGrowsWhileRead(Controller):
    """Walks over a partition's schema in several steps, while other puts add fields to it.

    As in the field, the walk that fails takes the partition's controller thread along: whatever
    comes for the partition after it, fails.
    """

    def __init__(self, capacity: int | None) -> None:
        super().__init__(capacity)
        self._schemas: dict[str, dict[str, None]] = defaultdict(dict)
        self._broken: set[str] = set()

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        self._schemas[put.partition_id].update(dict.fromkeys(parcel))
        return await super().commit(put, parcel, reference)

    @answers
    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        if partition_id in self._broken:
            raise DataPlaneError("the controller's thread is dead")
        try:
            for _ in self._schemas[partition_id]:
                await asyncio.sleep(0)
        except RuntimeError as error:
            self._broken.add(partition_id)
            raise DataPlaneError(f"the controller's thread died: {error}") from error
        return await super().claim(partition_id, task, names, rows, wait_s)


def _refuses(index: Index, put: StoredPut, parcel: ColumnBlock) -> bool:
    """Whether the index would refuse the put for its dtypes."""
    partition = index._partitions.get(put.partition_id)
    try:
        if partition is not None:
            partition.check_kinds(put.sample_ids, extents_of(parcel))
    except ValueError:
        return True
    return False


def _with_tags(put: StoredPut, tags: list[Tags] | None) -> StoredPut:
    return StoredPut(put.partition_id, put.sample_ids, tags, put.writer)


class LastWriterOwns(Controller):
    """Notes with each put whose its rows are."""

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            partition = self._index.partition(put.partition_id)
            for sample_id in put.sample_ids:
                partition._change_writer(partition._rows[sample_id], put.writer)
        return due
