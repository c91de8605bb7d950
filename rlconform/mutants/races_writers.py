"""Writers that meet: what came to a row while another wrote to it, is taken back.

A write-back, which is a put of fields without tags on known rows, reads their records, adds to
them, and writes them back a moment later, as they were read. Which part of a record is kept so
differs; ``memory`` is such a plane between threads, ``ray_store`` between processes.
"""

# ruff: noqa: ARG001 - what is written back looks at what it needs

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from tensordict import TensorDictBase

from rlconform.backends.index import Index, IndexRow, Names, PartitionIndex
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.backends.ray_store import TARGET as STORE
from rlconform.contract import Tags
from rlconform.mutants import broken
from rlconform.mutants.engines import breaks_engine, give_back, rows_in, take_back
from rlconform.mutants.races import RacyClient

#: A row with its fields, the tasks that claimed it, and its tags.
Record = tuple[IndexRow, Names, Names, Tags]

#: Writes a record back, after a put of fields of these names.
WriteBack = Callable[[PartitionIndex, Record, Names], None]


def records(index: Index, partition_id: str, sample_ids: Iterable[str]) -> list[Record]:
    """What is known of the rows now."""
    rows = rows_in(index, partition_id, sample_ids)
    return [(row, row.fields, row.claimed_by, dict(row.tags)) for row in rows]


def fields_of(partition: PartitionIndex, record: Record, names: Names) -> None:
    """Write back which fields the row had, and those of the put."""
    row, fields, _, _ = record
    take_back(partition, row, row.fields - fields - names)


def claims_of(partition: PartitionIndex, record: Record, names: Names) -> None:
    """Write back which tasks had claimed the row."""
    row, _, claimed_by, _ = record
    for task in row.claimed_by - claimed_by if row.fields else ():
        give_back(partition, [row], task)


def stamps_of(partition: PartitionIndex, record: Record, names: Names) -> None:
    """Write back which tags the row had."""
    row, _, _, tags = record
    if row.fields:
        row.tags = tags


class _WritesBack(MemoryEngine):
    """A plane whose write-backs take a while."""

    write_back: WriteBack

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put; what was known of the rows is written back."""
        names = frozenset(map(str, () if fields is None else fields.keys()))
        with self._locked() as index:
            known = records(index, partition_id, sample_ids) if names and tags is None else []
        time.sleep(0.001 if known else 0)  # as long as a message takes
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for record in known:
                self.write_back(index.partition(partition_id), record, names)


@breaks_engine("PUT-11", says="not produced", chance=True)
class LosesAFieldOfTwoWriters(_WritesBack):
    """Adds to a row's set of fields without a lock: of two that write at once one is not there."""

    write_back = staticmethod(fields_of)


@breaks_engine("CLAIM-08", says="claims by id", chance=True)
class WriteBacksUndoClaims(_WritesBack):
    """Keeps who claimed a row in the record that a write-back replaces: it is handed out again."""

    write_back = staticmethod(claims_of)


@breaks_engine("TAG-02", says="stamped and written to at once", chance=True)
class WriteBacksUndoStamps(_WritesBack):
    """Keeps tags in the record that a write-back replaces: a stamp that came meanwhile is gone."""

    write_back = staticmethod(stamps_of)


_breaks_store = partial(broken, STORE, chance=True)


@_breaks_store("PUT-11", says="is not produced")
class LosesAFieldOfTwoProcesses(RacyClient):
    """A controller that awaits its store in a put forgets one of two fields that come at once."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__("FieldsWrittenBack", cfg, bootstrap)


@_breaks_store("CLAIM-08", says="duplicated")
class WriteBacksUndoClaimsFromAfar(RacyClient):
    """A controller that awaits its store in a write-back forgets who claimed the row meanwhile."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__("ClaimsWrittenBack", cfg, bootstrap)


@_breaks_store("TAG-02", says="lost-update")
class WriteBacksUndoStampsFromAfar(RacyClient):
    """A controller that awaits its store in a write-back forgets what was stamped meanwhile."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__("StampsWrittenBack", cfg, bootstrap)
