"""Controllers whose write-backs take two steps and bring back rows cleared in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.index import IndexRow, Names, PartitionIndex
from rlconform.backends.index.block import Block
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import Tags
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.ray_store.race_helpers import second_message

#: A row with the state that it had.
Record = tuple[IndexRow, list[tuple[Block, int, Names]], Names, Tags]


class _RewritesRows(Controller):
    """Reads rows before a write-back, waits, and afterwards writes those that are gone."""

    #: Whether all rows of the partition are read and written, and not only the put's.
    _whole_partition = False

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        rows = rows_in(self._index, put.partition_id, put.sample_ids)
        adds = len(rows) == len(put.sample_ids) and all(parcel.keys() - row.fields for row in rows)
        if not parcel or not adds:
            return await super().commit(put, parcel, reference)
        ids = None if self._whole_partition else put.sample_ids
        known = list(_records(rows_in(self._index, put.partition_id, ids)))
        await second_message()
        due = await super().commit(put, parcel, reference)
        if not isinstance(due, Refusal):
            partition = self._index.partition(put.partition_id)
            for record in known:
                _restore(partition, record)
        return due


def _records(rows: Iterable[IndexRow]) -> Iterable[Record]:
    for row in rows:
        yield row, list(row.parts), row.fields, dict(row.tags)


def _restore(partition: PartitionIndex, record: Record) -> None:
    """Write a row as it was, if it was cleared since; a newer row of the id gets its columns."""
    old, parts, fields, tags = record
    row = partition._rows.get(old.sample_id)
    if row is old:
        return
    if row is None:
        row = IndexRow(old.sample_id, old.age, old.writer)
        partition._rows[row.sample_id] = row
        partition._written[row.writer][row.sample_id] = None
        partition._produced += bool(fields)
    lost = fields - row.fields
    row.parts += [(block, at, names & lost) for block, at, names in parts if names & lost]
    row.fields |= lost
    row.tags = {**tags, **row.tags}
    kinds = {name: block.extents[name].kind for block, _, names in parts for name in names & lost}
    partition._fields.add(kinds, 0, Counter([lost]))


@controller_mutant("ASYNC-03", evidence="not to be readable")
class WriteBackRestoresNeighbours(_RewritesRows):
    """Rewrites the partition's page of rows to add a column to some of them.

    Other groups that are cleared during the rewriting are there again.
    """

    _whole_partition = True


@controller_mutant("ASYNC-04", evidence="not to be readable")
class WriteBackRestoresRow(_RewritesRows):
    """Reads a row, adds the column and writes the row back, as stores of one object per row do.

    A row that is cleared in between is there again, with all of its columns.
    """
