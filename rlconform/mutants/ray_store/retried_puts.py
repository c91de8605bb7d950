"""Puts that pass for a retry of another process's, and are left out."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import StoredPut
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.clear import Numbered, NumbersClients
from rlconform.mutants.ray_store.mutant import ray_mutant


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
