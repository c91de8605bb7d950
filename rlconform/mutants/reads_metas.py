"""get_data that reads other fields or rows than the meta names, or more than it may."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownSample
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import held

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


class _FetchesWithTheClaim(MemoryClient):
    """Fetches the rows of the last claim at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._claimed: dict[tuple[str, ...], TensorDict] = {}

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim, and fetch at once what will be asked for."""
        meta = super().claim_meta(*args, **kwargs)
        if meta.sample_ids:
            fetched = super().get_data(meta)
            self._claimed = {(meta.partition_id, *meta.sample_ids): fetched}
        return meta

    def fetched(self, meta: Any) -> TensorDict | None:
        """What was fetched with the claim that gave this meta, if it was the last one."""
        return self._claimed.get((meta.partition_id, *meta.sample_ids))


@breaks("GET-06", says="the meta of rows cleared since")
class MetasOutliveTheirRows(_FetchesWithTheClaim):
    """get_data keeps the last batch that was claimed, also after its rows were cleared."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read, or give what was fetched if the rows are gone."""
        try:
            return super().get_data(meta, select_fields)
        except UnknownSample:
            fetched = self.fetched(meta)
            if fetched is None:
                raise
            return fetched.clone()


@breaks("GET-07", says="a shard without rows")
class RefusesEmptyMetas(MemoryClient):
    """get_data of an empty shard asks for its longest row, and there is none."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read the rows of a shard that has some."""
        if not getattr(meta, "sample_ids", True):
            raise ValueError("a shard without rows has no longest one")
        return super().get_data(meta, select_fields)


@breaks("GET-11", says="select_fields=['y']")
class AddsTheMetasFields(MemoryClient):
    """get_data reads the meta's fields and those that are selected beside them."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read the fields of both."""
        named = getattr(meta, "fields", None)
        both = [*named, *select_fields] if named and select_fields else select_fields
        return super().get_data(meta, both)


@breaks("GET-11", says="a meta that names no fields")
class ReadsAllWithoutFields(MemoryClient):
    """get_data reads every field where neither the meta nor the caller names one."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read what is named, else all that there is."""
        try:
            return super().get_data(meta, select_fields)
        except ValueError:
            if select_fields is not None or not meta.sample_ids:
                raise
            row = held(self, meta.partition_id)._rows[meta.sample_ids[0]]
            return super().get_data(meta, sorted(row.fields))


@breaks("PUT-13", says="row:")
class HandsOutTheClaimsCopy(_FetchesWithTheClaim):
    """Fetches the rows with the claim and gives these to get_data, whatever was put since."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Give what was fetched with the claim, as long as the rows are there."""
        batch = super().get_data(meta, select_fields)
        fetched = self.fetched(meta)
        return batch if fetched is None or select_fields is not None else fetched.clone()


@breaks("GET-01", "GET-11", "PUT-21", says="of get_data: row 0 of 'x' =", may_fail=("GET-02",))
class ReadsMetasInStoredOrder(MemoryClient):
    """get_data walks through its own table and takes the rows that a driver's meta names."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read rows in the order in which they lie; those of a claim are named in it."""
        named = getattr(meta, "sample_ids", None)
        if type(meta) is not KVBatchMeta or not named or meta.task_name:
            return super().get_data(meta, select_fields)
        lies = {sample_id: n for n, sample_id in enumerate(held(self, meta.partition_id)._rows)}
        stored = sorted(named, key=lambda sample_id: lies.get(sample_id, -1))
        return super().get_data(replace(meta, sample_ids=stored), select_fields)


@breaks("PUT-03", "PUT-01", "GET-01", says="of get_data:")
class InflatesBulkReads(MemoryClient):
    """get_data has a way of its own, on which a column of scalars becomes one of rows (NR-09)."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read, columns (N,) as (N, 1)."""
        batch = super().get_data(meta, select_fields)
        for name, leaf in list(batch.items()):
            if isinstance(leaf, Tensor) and leaf.dim() == 1:
                batch.set(name, leaf.unsqueeze(1))
        return batch
