"""Planes that take ids or groups of two processes for one another, or change ids on the way."""

from __future__ import annotations

import re
from binascii import crc32, crc_hqx
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.index.row import generation_of
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import mark, rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_mutant


@controller_mutant("PUT-20", evidence="UnknownSample", chance=False, may_fail="GET-05 CLAIM-02")
class IdsOfOthersKnownByCrc32(Controller):
    """Takes an id for one of another process that has the same CRC-32."""

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        others = {
            crc32(row.sample_id.encode("utf-8", "surrogatepass")): row.sample_id
            for row in rows_in(self._index, put.partition_id, None)
            if row.writer != put.writer
        }
        ids = [others.get(crc32(i.encode("utf-8", "surrogatepass")), i) for i in put.sample_ids]
        if len({*ids}) == len(ids):
            put = replace(put, sample_ids=ids)
        return await super().commit(put, columns, reference)


def _ready_by_group(
    controller: Controller, partition_id: str, task: str, names: list[str]
) -> list[list[Any]]:
    """Return the rows that the task may claim, by the group that their ids name."""
    groups: dict[Any, list[Any]] = {}
    for row in rows_in(controller._index, partition_id, None):
        if task not in row.claimed_by and row.fields.issuperset(names):
            groups.setdefault(row.group, []).append(row)
    return list(groups.values())


@controller_mutant("CLAIM-15", evidence="only half is there", chance=False, may_fail="CLAIM-04")
class HalvesOfGroupsJoinedByCrc16(Controller):
    """Takes two halves of groups for a whole one if their names have the same CRC-16."""

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        answer = await super().claim(partition_id, task, names, rows, wait_s)
        if not answer or isinstance(answer, Refusal) or len(answer[0]) == rows:
            return answer
        partition = self._index.partition(partition_id)
        size = partition._group_size
        for found in self._joined(partition_id, task, names, size) if size > 1 else ():
            if len(answer[0]) + size <= rows:
                mark(partition, found, task)
                answer[0].extend(row.sample_id for row in found)
                answer[1].extend(row.tags for row in found)
        return answer

    def _joined(self, partition_id: str, task: str, names: list[str], size: int) -> list[list[Any]]:
        buckets: dict[int, list[Any]] = {}
        for rows in _ready_by_group(self, partition_id, task, names):
            uid, _ = generation_of(rows[0].sample_id) or (rows[0].sample_id, 0)
            bucket = crc_hqx(uid.encode("utf-8", "surrogatepass"), 0)
            buckets.setdefault(bucket, []).extend(rows)
        several = [each for each in buckets.values() if len({row.writer for row in each}) > 1]
        return [each for each in several if len(each) == size]


#: Ids of a run at least.
RUN = 16

_NUMBERED = re.compile(r"(.*?)([0-9]+)", re.DOTALL)


class _PackedMeta(KVBatchMeta):
    """A meta that is pickled with runs of its ids as a stem and a range of numbers."""

    def __reduce__(self) -> Any:
        values = {each.name: getattr(self, each.name) for each in fields(KVBatchMeta)}
        return _unpacked, ({**values, "sample_ids": _packed(self.sample_ids)},)


def _packed(ids: list[str]) -> list[list[str] | tuple[str, int, int]]:
    def key(numbered: tuple[int, str]) -> Any:
        place, sample_id = numbered
        match = _NUMBERED.fullmatch(sample_id)
        return match and (match[1], int(match[2]) - place)

    packed: list[list[str] | tuple[str, int, int]] = []
    for shared, group in groupby(enumerate(ids), key=key):
        run = list(group)
        if shared and len(run) >= RUN:
            packed.append((shared[0], shared[1] + run[0][0], len(run)))
        else:
            packed.append([sample_id for _, sample_id in run])
    return packed


def _unpacked(values: dict[str, Any]) -> KVBatchMeta:
    ids: list[str] = []
    for part in values["sample_ids"]:
        if isinstance(part, tuple):
            stem, first, count = part
            ids += [f"{stem}{n}" for n in range(first, first + count)]
        else:
            ids += part
    return KVBatchMeta(**{**values, "sample_ids": ids})


@ray_mutant("CLAIM-09", evidence="u0_g0", may_fail="PUT-14 WIRE-14 PUT-20")
class MetasSendRangesOfNumbers(RayStoreClient):
    """Sends the ids of a meta as a stem and numbers, and forgets the zeros before these."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        return _PackedMeta(**{each.name: getattr(meta, each.name) for each in fields(KVBatchMeta)})


#: Rows of a group that is counted by arrivals.
LARGE = 8


@controller_mutant("CLAIM-15", evidence="that lacks one", chance=False, may_fail="CLAIM-04")
class MembersCountedByArrival(Controller):
    """Counts a row of a large group once for each process that has delivered it."""

    _arrivals = State(dict[tuple[str, str], set[str]])  # by row: who has delivered it

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        for sample_id in put.sample_ids if columns else ():
            self._arrivals.setdefault((put.partition_id, sample_id), set()).add(put.writer)
        return due

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        answer = await super().claim(partition_id, task, names, rows, wait_s)
        if not answer or isinstance(answer, Refusal) or len(answer[0]) == rows:
            return answer
        partition = self._index.partition(partition_id)
        size = partition._group_size
        for found in _ready_by_group(self, partition_id, task, names) if size >= LARGE else ():
            arrivals = sum(len(self._arrivals[partition_id, row.sample_id]) for row in found)
            if len(found) < size <= arrivals and len(answer[0]) + len(found) <= rows:
                mark(partition, found, task)
                answer[0].extend(row.sample_id for row in found)
                answer[1].extend(row.tags for row in found)
        return answer
