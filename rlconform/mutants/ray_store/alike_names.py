"""Planes that take ids of two processes for one another, or change ids on the way."""

from __future__ import annotations

import re
from binascii import crc32
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.helpers import rows_in
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
