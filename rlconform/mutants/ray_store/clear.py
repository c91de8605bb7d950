"""Clears of all rows (``sample_ids`` is None) that clear the rows of the wrong writer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut, answers
from rlconform.mutants.call import MethodCall
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_call_mutant, ray_mutant


@ray_call_mutant(RayStoreClient.clear_samples, "CLEAR-03", evidence="not to be readable")
def AttachedClearAllIgnored(clear: MethodCall) -> None:
    """Records only the owner as a writer, so a clear of all by another process does nothing."""
    if clear.sample_ids is not None or clear.plane._owner:
        clear()


@controller_mutant("CLEAR-03", evidence="not to be readable", chance=False)
class ClearAllByLastWriter(Controller):
    """Takes a row's last writer as its writer: the driver can't clear rows that others changed."""

    @answers
    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            partition = self._index.partition(put.partition_id)
            for sample_id in put.sample_ids:
                partition._change_writer(partition._rows[sample_id], put.writer)
        return due


@ray_mutant("CLEAR-08", evidence="UnknownSample")
class ClearAllByHost(RayStoreClient):
    """Records the host of a put, so a clear of all clears rows of other processes too (NR-30)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        call = self._connection.call

        def call_as_host(method: str, *args: Any) -> Any:
            if method == "commit":
                args = (replace(args[0], writer="host"), *args[1:])
            if method == "clear":
                args = (*args[:2], "host")
            return call(method, *args)

        self._connection.call = call_as_host
