"""Clears that remove too many rows or too few, or reject what they must accept."""

from __future__ import annotations

import threading

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownPartition, UnknownSample
from rlconform.mutants.memory.helpers import PAGE, engine_mutant, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags


class _ClearsOthers(MemoryEngine):
    """Clears ``meant(living, sample_ids)``."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            living = dict(partition._rows) if partition is not None else {}
        super().clear(partition_id, self.meant(living, sample_ids))

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        """What is cleared in place of ``sample_ids``."""
        raise NotImplementedError


@engine_mutant("CLEAR-01", evidence="UnknownSample")
class ClearTakesIdsByPrefix(_ClearsOthers):
    """Deletes the keys that begin with an id: the 10th generation goes with the first."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return sample_ids and [i for i in living if i.startswith(tuple(sample_ids))]


@engine_mutant(
    "CLEAR-01",
    evidence="never put, or cleared",
    may_fail=("REG-04", "STAT-01", "CLEAR-04", "CLAIM-10"),
)
class ClearTakesWholeRange(_ClearsOthers):
    """Deletes the slots from the first of the ids to the last, as they lie side by side mostly."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        ages = [living[i].age for i in sample_ids or [] if i in living]
        return sample_ids and [
            i for i in living if ages and min(ages) <= living[i].age <= max(ages)
        ]


@engine_mutant("CLEAR-01", evidence="UnknownSample", may_fail=("CLEAR-02", "CLEAR-05"))
class ClearDuplicateIdTakesNextRow(_ClearsOthers):
    """Deletes by place, one after the other: an id named twice takes the next row along."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        places, ids = list(living), list(sample_ids or [])
        for sample_id in {i for i in ids if ids.count(i) > 1 and i in living}:
            ids += places[places.index(sample_id) + 1 :][:1]
        return sample_ids and ids


@engine_mutant("CLEAR-01", "CLEAR-03", evidence="not to be readable")
class ClearLimitedToPage(_ClearsOthers):
    """A clear deletes the first 100 rows, as many as one request takes, and forgets the others."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return (list(living) if sample_ids is None else sample_ids)[:PAGE]


@engine_mutant("CLEAR-02", evidence="UnknownSample")
class ClearUnknownIdsRejected(MemoryEngine):
    """A clear of a row that isn't there is an error (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            if sample_ids and not rows_in(index, partition_id, sample_ids):
                raise UnknownSample(f"none of {sample_ids} is here")
        super().clear(partition_id, sample_ids)


@engine_mutant("CLEAR-02", evidence="not to be readable", may_fail=("CLEAR-01",))
class ClearUnknownIdStopsClear(MemoryEngine):
    """A clear of known and unknown ids together does nothing, and says nothing (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids or [])
        if sample_ids is None or len(known) == len(sample_ids):
            super().clear(partition_id, sample_ids)


@memory_mutant("CLEAR-02", evidence="never put, or cleared", may_fail=("CLEAR-01",))
class ClearEmptyIdsClearsAll(MemoryClient):
    """Writes ``if not sample_ids``: an empty list of rows to drop drops them all."""

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(None if sample_ids == [] else sample_ids, partition_id)


@engine_mutant("CLEAR-03", evidence="no tag of what was cleared", may_fail=("CLEAR-04",))
class ClearAllSparesTagOnlyRows(_ClearsOthers):
    """With None it drops the rows that have fields, for these are what it keeps a list of."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return [i for i in living if living[i].fields] if sample_ids is None else sample_ids


@engine_mutant(
    "CLEAR-03",
    evidence="not to be readable",
    may_fail=("CLEAR-01", "CLEAR-04", "REG-03", "CLAIM-10"),
)
class ClearAllSparesClaimedRows(_ClearsOthers):
    """With None it drops what is queued; rows that a task was given are that task's affair."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        return [i for i in living if not living[i].claimed_by] if sample_ids is None else sample_ids


@engine_mutant("CLEAR-03", evidence="UnknownPartition")
class ClearUnknownPartitionRejected(MemoryEngine):
    """A clear of all in a partition that isn't there is an error (TQ-12)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            if sample_ids is None and partition_id not in index._partitions:
                raise UnknownPartition(partition_id)
        super().clear(partition_id, sample_ids)


@engine_mutant("CLEAR-03", evidence="not to be readable")
class ClearAllSparesOtherThreads(MemoryEngine):
    """With None it drops what this thread put, where it should be this process: rows stay."""

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
    """Takes rows out of the columns of a list's rows: those in none of them stay, tags and all."""

    def meant(self, living: dict[str, IndexRow], sample_ids: Ids | None) -> list[str] | None:
        stored = [i for i in sample_ids or [] if i in living and living[i].fields]
        return stored or sample_ids


@engine_mutant("CLEAR-05", "CLEAR-03", evidence="UnknownSample", may_fail=("STAT-05", "CLEAR-01"))
class ClearTagOnlyRowsRejected(MemoryEngine):
    """A clear looks up which fields to delete, and raises for a row that has none (TQ-13)."""

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            if any(not row.fields for row in rows_in(index, partition_id, sample_ids)):
                raise UnknownSample("a row has no fields")
        super().clear(partition_id, sample_ids)
