"""Controllers of ``ray_store`` whose write-backs take a while, and write back what they read."""

from __future__ import annotations

from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.mutants.races_store import second_message
from rlconform.mutants.races_writers import WriteBack, claims_of, fields_of, records, stamps_of


class _WritesBack(Controller):
    """Reads the rows' records, waits, adds to them, and writes them back."""

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


class FieldsWrittenBack(_WritesBack):
    """Writes back which fields the rows had."""

    write_back = staticmethod(fields_of)


class ClaimsWrittenBack(_WritesBack):
    """Writes back which tasks had claimed the rows."""

    write_back = staticmethod(claims_of)


class StampsWrittenBack(_WritesBack):
    """Writes back which tags the rows had."""

    write_back = staticmethod(stamps_of)
