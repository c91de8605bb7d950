"""Metas that carry their rows along: other rows are there later, or the meta has others by then."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids

#: A place, and how many rows it had before, in eight bits.
Place = tuple[int, int]


class _NumbersPlaces(Controller):
    _held = State(dict[str, list[str | None]])  # the row of each place, by partition
    _before = State(Counter[tuple[str, int]])

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        if not isinstance(due, Refusal):
            held = self._held.setdefault(put.partition_id, [])
            for sample_id in set(put.sample_ids).difference(held):
                if None in held:
                    held[held.index(None)] = sample_id
                else:
                    held.append(sample_id)
        return due

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        done = await super().clear(partition_id, sample_ids, writer)
        left, held = set(self._index.sample_ids(partition_id)), self._held.get(partition_id, [])
        for place, sample_id in enumerate(held):
            if sample_id is not None and sample_id not in left:
                held[place] = None
                self._before[partition_id, place] += 1
        return done

    async def places(self, partition_id: str, sample_ids: Ids) -> dict[str, Place]:
        """Return the places of rows that exist."""
        held = self._held.get(partition_id, [])
        places = [(i, held.index(i)) for i in sample_ids if i in held]
        return {i: (place, self._before[partition_id, place] % 256) for i, place in places}

    async def rows_at(self, partition_id: str, places: dict[str, Place]) -> dict[str, str]:
        """Return the rows that are at these places, unless their number tells that others were."""
        held = self._held.get(partition_id, [])
        return {
            i: row
            for i, (place, number) in places.items()
            if self._before[partition_id, place] % 256 == number and (row := held[place])
        }


@ray_mutant("CLEAR-07", evidence="not to be readable")
class PlacesNumberedInOneByte(ControllerClient):
    """Reads by the places that a claim's meta has taken along, if no other row was there since.

    A place counts its rows in eight bits: the 256th row after a cleared one is taken for it.
    """

    controller_class = _NumbersPlaces

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        if meta.sample_ids:
            places = self._connection.call("places", partition_id, list(meta.sample_ids))
            meta.extra_info["places"] = places
        return meta

    def get_data(self, meta: Any, select_fields: Any = None) -> TensorDict:
        known = isinstance(meta, KVBatchMeta) and (meta.extra_info or {}).get("places")
        if known:
            rows = self._connection.call("rows_at", meta.partition_id, known)
            meta = replace(meta, sample_ids=[rows.get(i, i) for i in meta.sample_ids])
        return super().get_data(meta, select_fields)


@ray_mutant("GET-01", evidence="row 1 of 'x'")
class MetaTrustedByItsEnds(RayStoreClient):
    """Reads the rows that a claim's meta has taken along, if another process's meta has their ends.

    The process that claimed them reads by the meta's ids.
    """

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if meta.sample_ids:
            meta.extra_info["claimed"] = process_id(), list(meta.sample_ids)
        return meta

    def get_data(self, meta: Any, select_fields: Any = None) -> TensorDict:
        known = isinstance(meta, KVBatchMeta) and (meta.extra_info or {}).get("claimed")
        if known and meta.sample_ids:
            process, claimed = known
            ends = [(ids[0], ids[-1], len(ids)) for ids in (claimed, meta.sample_ids)]
            if process != process_id() and ends[0] == ends[1]:
                meta = replace(meta, sample_ids=claimed)
        return super().get_data(meta, select_fields)
