"""Clears by other processes than the one that wrote the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut, answers
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_mutant
from rlconform.mutants.types import Ids


@ray_mutant("CLEAR-03", evidence="not to be readable")
class AttachedClearAllIgnored(RayStoreClient):
    """Keeps who put what in the owner: an attached process has nothing that it could clear."""

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        if sample_ids is not None or self._owner:
            super().clear_samples(sample_ids, partition_id)


@controller_mutant("CLEAR-03", evidence="not to be readable", chance=False)
class ClearAllByLastWriter(Controller):
    """A row belongs to the process that wrote to it last: a write-back takes it from the driver."""

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            partition = self._index.partition(put.partition_id)
            for sample_id in put.sample_ids:
                partition._change_writer(partition._rows[sample_id], put.writer)
        return due


class _Signs:
    """A session whose puts and clears are signed by the host."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def call(self, method: str, *args: Any) -> Any:
        """The controller's answer."""
        if method == "commit":
            args = (replace(args[0], writer="host"), *args[1:])
        if method == "clear":
            args = (*args[:2], "host")
        return self._connection.call(method, *args)


@ray_mutant("CLEAR-08", evidence="UnknownSample")
class ClearAllByHost(RayStoreClient):
    """Notes the host that put a row, not the process: one's clear of all takes them all (NR-30)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine._connection = _Signs(self._connection)  # type: ignore[attr-defined]
