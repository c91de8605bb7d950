"""Clears that remove too many or too few rows, or reject what they must accept."""

from __future__ import annotations

import threading

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownPartition, UnknownSample
from rlconform.mutants.memory.helpers import PAGE, engine_mutant, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags


class _ClearsOthers(MemoryEngine):
    """Clears the rows that ``meant(living, sample_ids)`` returns."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            living = dict(partition._rows) if partition is not None else {}
        super().clear(partition_id, self.meant(living, sample_ids))

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        """The ids that are cleared in place of ``sample_ids``."""
        raise NotImplementedError


@engine_mutant("CLEAR-01", evidence="UnknownSample")
class ClearTakesIdsByPrefix(_ClearsOthers):
    """Clears every id that starts with a given id, so the 10th generation goes with the first."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return sample_ids and [i for i in living if i.startswith(tuple(sample_ids))]


@engine_mutant(
    "CLEAR-01",
    evidence="never put, or cleared",
    may_fail=("REG-04", "STAT-01", "CLEAR-04", "CLAIM-10"),
)
class ClearTakesWholeRange(_ClearsOthers):
    """Clears every slot from the first given id to the last, also those of other rows."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        ages = [living[i].age for i in sample_ids or [] if i in living]
        return sample_ids and [
            i for i in living if ages and min(ages) <= living[i].age <= max(ages)
        ]


@engine_mutant("CLEAR-01", evidence="UnknownSample", may_fail=("CLEAR-02", "CLEAR-05"))
class ClearDuplicateIdTakesNextRow(_ClearsOthers):
    """Clears by position, so an id that is given twice also clears the next row."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        places, ids = list(living), list(sample_ids or [])
        for sample_id in {i for i in ids if ids.count(i) > 1 and i in living}:
            ids += places[places.index(sample_id) + 1 :][:1]
        return sample_ids and ids


@engine_mutant("CLEAR-01", "CLEAR-03", evidence="not to be readable")
class ClearLimitedToPage(_ClearsOthers):
    """Clears only the first 100 rows, the limit of one request."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return (list(living) if sample_ids is None else sample_ids)[:PAGE]


@engine_mutant("CLEAR-02", evidence="UnknownSample")
class ClearUnknownIdsRejected(MemoryEngine):
    """Raises an error for a clear of rows that don't exist (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            if sample_ids and not rows_in(index, partition_id, sample_ids):
                raise UnknownSample(f"none of {sample_ids} is here")
        super().clear(partition_id, sample_ids)


@engine_mutant("CLEAR-02", evidence="not to be readable", may_fail=("CLEAR-01",))
class ClearUnknownIdStopsClear(MemoryEngine):
    """Silently clears nothing if one of the ids is unknown (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids or [])
        if sample_ids is None or len(known) == len(sample_ids):
            super().clear(partition_id, sample_ids)


@memory_mutant("CLEAR-02", evidence="never put, or cleared", may_fail=("CLEAR-01",))
class ClearEmptyIdsClearsAll(MemoryClient):
    """Tests ``if not sample_ids``, so an empty list clears all rows."""

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(None if sample_ids == [] else sample_ids, partition_id)


@engine_mutant("CLEAR-03", evidence="no tag of what was cleared", may_fail=("CLEAR-04",))
class ClearAllSparesTagOnlyRows(_ClearsOthers):
    """Keeps rows that have only tags when ``sample_ids`` is None."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return [i for i in living if living[i].fields] if sample_ids is None else sample_ids


@engine_mutant(
    "CLEAR-03",
    evidence="not to be readable",
    may_fail=("CLEAR-01", "CLEAR-04", "REG-03", "CLAIM-10"),
)
class ClearAllSparesClaimedRows(_ClearsOthers):
    """Keeps claimed rows when ``sample_ids`` is None: it clears only its queue."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return [i for i in living if not living[i].claimed_by] if sample_ids is None else sample_ids


@engine_mutant("CLEAR-03", evidence="UnknownPartition")
class ClearUnknownPartitionRejected(MemoryEngine):
    """Raises an error for a clear of all rows in an unknown partition (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            if sample_ids is None and partition_id not in index._partitions:
                raise UnknownPartition(partition_id)
        super().clear(partition_id, sample_ids)


@engine_mutant("CLEAR-03", evidence="not to be readable")
class ClearAllSparesOtherThreads(MemoryEngine):
    """Clears only the calling thread's rows, not the process's, when ``sample_ids`` is None."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        with self._locked() as index:
            super().put(partition_id, sample_ids, fields, tags)
            for row in rows_in(index, partition_id, sample_ids):
                if not row.writer:
                    index.partition(partition_id)._change_writer(row, str(threading.get_ident()))

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        if sample_ids is None:
            with self._locked() as index:
                partition = index._partitions.get(partition_id)
                me = str(threading.get_ident())
                sample_ids = [] if partition is None else partition.rows_of(me)
        super().clear(partition_id, sample_ids)


@engine_mutant("CLEAR-05", evidence="no tag of the first put")
class ClearTagOnlyRowsAmongOthersSpared(_ClearsOthers):
    """Keeps rows that have only tags, with those tags, if other rows in the clear have fields."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        stored = [i for i in sample_ids or [] if i in living and living[i].fields]
        return stored or sample_ids


@engine_mutant("CLEAR-05", "CLEAR-03", evidence="UnknownSample", may_fail=("STAT-05", "CLEAR-01"))
class ClearTagOnlyRowsRejected(MemoryEngine):
    """Raises an error for a clear of a row that has tags and no fields (TQ-13)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            if any(not row.fields for row in rows_in(index, partition_id, sample_ids)):
                raise UnknownSample("a row has no fields")
        super().clear(partition_id, sample_ids)
