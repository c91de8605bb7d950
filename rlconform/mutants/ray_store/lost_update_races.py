"""Controllers that write back a record they read earlier and undo changes made in between."""

from __future__ import annotations

from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.memory.helpers import WriteBack, claims_of, fields_of, records, stamps_of
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
