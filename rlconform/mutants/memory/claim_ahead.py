"""Claims that take more rows than they were asked for, and keep them for the next claim."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque

from rlconform.backends.index import IndexRow, PartitionIndex
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    claim_meta_mutant,
    engine_mutant,
    give_back,
    partition_of,
)
from rlconform.mutants.types import Claimed, Names, Wait


class TakesRowsAhead(MemoryEngine):
    """An engine whose claims take twice the rows and return the rest later, as ``later`` says."""

    _ahead = State(dict[tuple[str, str, frozenset[str]], deque[tuple[IndexRow, Tags]]])

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        key = (partition_id, task, frozenset(names))
        with self._locked() as index:
            partition = index.partition(partition_id)
            kept = self._ahead.pop(key, deque())
            if wait_s is None:
                kept = deque(each for each in kept if self.later(partition, *each) is not None)
                if len(kept) < rows:
                    more = partition.claim(task, key[2], 2 * rows - len(kept))
                    kept += [(row, dict(row.tags)) for row in more]
                due = [kept.popleft() for _ in range(min(rows, len(kept)))]
                self._ahead[key] = kept
                returned = [(row.sample_id, self.later(partition, row, tags)) for row, tags in due]
                return [i for i, _ in returned], [tags or {} for _, tags in returned]
            give_back(partition, [row for row, _ in kept if row.fields], task)
        return super().claim(partition_id, task, names, rows, wait_s)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        kept = [
            row
            for (where, task, _), rows in self._ahead.items()
            for row, _ in rows
            if where == partition_id and task in tasks and row.fields
        ]
        return not kept and super().all_claimed(partition_id, tasks)

    @abstractmethod
    def later(self, partition: PartitionIndex, row: IndexRow, tags: Tags) -> Tags | None:
        """Return the tags with which a row that was taken ahead is returned; None to drop it.

        ``tags`` are those that the row had when it was taken.
        """


@engine_mutant(
    "CLAIM-10",
    evidence="cleared",
    may_fail="CLAIM-02 CLAIM-15 CLEAR-01 CLEAR-03 CLEAR-04 REG-03 STAT-05",
)
class ClaimPrefetchesRows(TakesRowsAhead):
    """Claims twice the requested rows and returns the rest later, even if they were cleared."""

    def later(self, partition: PartitionIndex, row: IndexRow, tags: Tags) -> Tags | None:
        return dict(row.tags)


@engine_mutant("TAG-01", evidence="tags put after an earlier claim", may_fail="CLAIM-15")
class ClaimPrefetchesTags(TakesRowsAhead):
    """Claims twice the requested rows and returns the rest later, with the tags of that time."""

    def later(self, partition: PartitionIndex, row: IndexRow, tags: Tags) -> Tags | None:
        return tags if row.fields else None


@engine_mutant("CLEAR-04", evidence="cleared after an earlier claim", may_fail="CLAIM-15 REG-03")
class ClaimPrefetchesIds(TakesRowsAhead):
    """Claims twice the requested rows and returns the ids of the rest later, if they exist then.

    So it returns a row that was cleared and put again twice: as the old row and as the new one.
    """

    def later(self, partition: PartitionIndex, row: IndexRow, tags: Tags) -> Tags | None:
        now = partition._rows.get(row.sample_id)
        return None if now is None else dict(now.tags)


@claim_meta_mutant("CLAIM-12", evidence="rows that rank 0 has not claimed", may_fail="STAT-01")
def ClaimPrefetchesRowsForRank(claim: MethodCall) -> KVBatchMeta:
    """Claims as many rows again for the next claim of the same rank, so other ranks miss them."""
    if claim.dp_rank is None or claim.blocking is not False:
        return claim()
    key = (claim.partition_id, claim.task_name, claim.dp_rank)
    with claim.plane._engine._locked():
        kept = [row for row in claim.notes.pop(key, ()) if row.fields]
        give_back(partition_of(claim), kept, claim.task_name)
        meta: KVBatchMeta = claim()
        names, rows = frozenset(claim.required_fields), len(meta.sample_ids)
        claim.notes[key] = partition_of(claim).claim(claim.task_name, names, rows)
    return meta
