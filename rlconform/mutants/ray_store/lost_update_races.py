"""Controllers that write back a record they read earlier and undo changes made in between."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.memory.helpers import (
    WriteBack,
    claims_of,
    fields_of,
    records,
    rows_in,
    stamps_of,
)
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.ray_store.race_helpers import second_message


class _WriteBackController(Controller):
    """Reads rows before a put, waits, and restores a part of what it read after the put."""

    write_back: WriteBack

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        if not parcel or put.tags is not None:
            return await super().commit(put, parcel, reference)
        known = records(self._index, put.partition_id, put.sample_ids)
        if known:
            await second_message()
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            for record in known:
                partition = self._index.partition(put.partition_id)
                self.write_back(partition, record, frozenset(parcel))
        return due


@controller_mutant("CLAIM-08", evidence="duplicated")
class PutUndoesClaimsOfProcesses(_WriteBackController):
    """Waits for its store during a put, and undoes claims of the same rows made meanwhile."""

    write_back = staticmethod(claims_of)


@controller_mutant("PUT-11", evidence="is not produced")
class PutFieldsOfTwoProcessesLost(_WriteBackController):
    """Waits for its store during a put, and loses fields that another put adds meanwhile."""

    write_back = staticmethod(fields_of)


@controller_mutant("TAG-02", evidence="lost-update")
class PutUndoesStampsOfProcesses(_WriteBackController):
    """Waits for its store during a put, and undoes changes of tags made meanwhile."""

    write_back = staticmethod(stamps_of)


#: Rows of a put whose tags are merged in two steps.
MANY = 64


@controller_mutant("TAG-07", evidence="on every row", chance=False)
class TagsOfLargePutMergedInTwoSteps(Controller):
    """Reads the tags of the rows of a large put, waits, and writes them back with its own."""

    async def commit(self, put: StoredPut, columns: Any, reference: list[Any]) -> Any:
        if put.tags is None or len(put.sample_ids) < MANY:
            return await super().commit(put, columns, reference)
        known = {
            row.sample_id: dict(row.tags)
            for row in rows_in(self._index, put.partition_id, put.sample_ids)
        }
        await second_message()
        own = zip(put.sample_ids, put.tags, strict=True)
        merged = [{**known.get(sample_id, {}), **tags} for sample_id, tags in own]
        return await super().commit(replace(put, tags=merged), columns, reference)
