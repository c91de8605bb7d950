"""Puts and clears that pass for a retry, and are left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.clear import Numbered, NumbersClients
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags


class _KnowsLastPuts(NumbersClients):
    _puts = State(Counter[tuple[str, str]])  # by process and partition
    _last = State(dict[tuple[int, str], int])  # by number of the client and partition

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        self._puts[put.writer, put.partition_id] += 1
        number = self._puts[put.writer, put.partition_id]
        client = self._number.get(put.writer, -1), put.partition_id
        if self._last.get(client) == number:
            return []
        self._last[client] = number
        return await super().commit(put, columns, reference)


@ray_mutant(
    "GET-10", evidence="no sample 'r0'", may_fail="CLAIM-02 LIFE-02 LIFE-06 CLEAR-04 REG-03"
)
class PutsKnownByNumberOfClient(Numbered):
    """Leaves out a put with the number of the last one of a client that had its number before."""

    controller_class = _KnowsLastPuts


#: Ids of a clear that is known when it comes again.
KNOWN = 256


@ray_mutant("CLEAR-01", evidence="not to be readable", may_fail="CLEAR-04 CLEAR-02 GET-06")
class LargeClearAnsweredFromMemory(RayStoreClient):
    """Answers a clear of many ids from memory if the client has changed nothing since its equal."""

    _cleared: tuple[str, list[str]] | None = None

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        request = (partition_id, list(sample_ids or ()))
        if len(request[1]) > KNOWN and request == self._cleared:
            return
        super().clear_samples(sample_ids, partition_id)
        self._cleared = request

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        self._cleared = None
        return super().put_samples(sample_ids, partition_id, fields, tags)
