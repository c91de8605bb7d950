"""Clears of all rows that choose the rows by the wrong writer."""

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
    """Records writers in the owner only: a clear of all from another process does nothing."""
    if clear.sample_ids is not None or clear.plane._owner:
        clear()


@controller_mutant("CLEAR-03", evidence="not to be readable", chance=False)
class ClearAllByLastWriter(Controller):
    """Treats a row's last writer as its writer: after a write-back, the driver can't clear it."""

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
    """Records a put's host, not its process: a clear of all clears others' rows too (NR-30)."""

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
