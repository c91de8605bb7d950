"""Controllers that take large calls in chunks, between which calls of other processes run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.memory.helpers import give_back, mark, rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.ray_store.race_helpers import second_message
from rlconform.mutants.types import Names, Wait

#: Rows of a chunk.
CHUNK = 512


@controller_mutant("CLAIM-02", evidence="duplicated", may_fail="STAT-01 CLAIM-10 LOAD-01 FAULT-04")
class LargeClaimsMarkedInChunks(Controller):
    """Chooses the rows of a claim at once, and marks those after the first 512 later."""

    async def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait
    ) -> Any:
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if not isinstance(claimed, tuple) or len(claimed[0]) <= CHUNK:
            return claimed
        partition = self._index.partition(partition_id)
        late = rows_in(self._index, partition_id, claimed[0][CHUNK:])
        give_back(partition, late, task)
        await second_message()
        mark(partition, late, task)
        return claimed


@controller_mutant("TAG-04", evidence="tags-late", may_fail="TAG-01 TAG-07 CLAIM-14 LIFE-05")
class LargePutsTaggedInChunks(Controller):
    """Stores the rows of a put at once, and the tags after the first 512 later."""

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        if put.tags is None or len(put.tags) <= CHUNK:
            return await super().commit(put, columns, reference)
        tags = [*put.tags[:CHUNK], *({} for _ in put.tags[CHUNK:])]
        due = await super().commit(replace(put, tags=tags), columns, reference)
        if not isinstance(due, Refusal):
            await second_message()
            await super().commit(replace(put, tags=put.tags), {}, [])
        return due
