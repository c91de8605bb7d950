"""Claims that order rows wrongly or split them by ``dp_rank``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.helpers import (
    RowSlots,
    engine_mutant,
    give_back,
    mark,
    memory_mutant,
    rows_in,
)
from rlconform.mutants.types import Claimed, Names, Wait


class _KnowsRanks(MemoryClient):
    """Claims rows with a separate cursor for each rank for which ``splits`` is true."""

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Names,
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        call = (partition_id, task_name, required_fields, batch_size, dp_rank, blocking, timeout_s)
        if not self.splits(dp_rank):
            return super().claim_meta(*call)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            partition = index.partition(partition_id)
            tasks = set(partition._tasks)
            if task_name in tasks:
                partition._tasks.add(f"{task_name} of rank {dp_rank}")
        cursor = f"{task_name} of rank {dp_rank}"
        meta = super().claim_meta(partition_id, cursor, *call[2:])
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            mark(
                index.partition(partition_id),
                rows_in(index, partition_id, meta.sample_ids),
                task_name,
            )
        return replace(meta, task_name=task_name)

    def splits(self, rank: int | None) -> bool:
        """Whether the rank has a separate cursor."""
        return rank is not None


@memory_mutant(
    "CLAIM-12", evidence="claims by id over two ranks", may_fail=("CLAIM-02", "CLAIM-10", "STAT-01")
)
class ClaimCursorPerRank(_KnowsRanks):
    """Returns all rows to every rank, as a broadcast does."""


@memory_mutant(
    "CLAIM-12", evidence="claims by id over two ranks", may_fail=("CLAIM-02", "CLAIM-10", "STAT-01")
)
class ClaimRankZeroIsNone(_KnowsRanks):
    """Tests ``if dp_rank``: rank 0 uses the task's cursor, and each other rank a separate one."""

    def splits(self, rank: int | None) -> bool:
        return bool(rank)


class _DealsRows(MemoryClient):
    """Assigns each row to one of ``ranks`` ranks by the row's number."""

    ranks: int

    def claim_meta(self, partition_id: str, task_name: str, *args: Any, **kw: Any) -> KVBatchMeta:
        rank, size = kw.get("dp_rank"), kw.get("batch_size")
        if rank is None or kw.get("blocking"):
            return super().claim_meta(partition_id, task_name, *args, **kw)
        all_rows = {**kw, "batch_size": 1 << 20}
        meta = super().claim_meta(partition_id, task_name, *args, **all_rows)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            rows = rows_in(index, partition_id, meta.sample_ids)
            own = [row for row in rows if row.age % self.ranks == rank % self.ranks][:size]
            rest = [row for row in rows if row not in own]
            give_back(index.partition(partition_id), rest, task_name)
        kept = [n for n, i in enumerate(meta.sample_ids) if i in {row.sample_id for row in own}]
        return meta.subset(kept)


@memory_mutant("CLAIM-12", evidence="rows of the one rank that asks")
class ClaimDealtToTwoRanks(_DealsRows):
    """Assigns each row to one of two ranks, so rows of a rank that never claims stay unclaimed."""

    ranks = 2


@memory_mutant("CLAIM-12", evidence="claims by id over two ranks", may_fail=("CLAIM-02",))
class ClaimDealtToEightRanks(_DealsRows):
    """Assigns each row to one of eight configured ranks, even if fewer ranks claim."""

    ranks = 8


class _Chooses(MemoryEngine):
    """Claims the rows with the smallest ``order`` first."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            partition = index.partition(partition_id)
            if wait_s is not None or partition._group_size > 1:
                return super().claim(partition_id, task, names, rows, wait_s)
            ready = partition.claim(task, frozenset(names), 1 << 20)
            ready.sort(key=lambda row: self.order(partition_id, row))
            give_back(partition, ready[rows:], task)
            chosen = ready[:rows]
            return [row.sample_id for row in chosen], [dict(row.tags) for row in chosen]

    def order(self, partition_id: str, row: IndexRow) -> Any:
        """The sort key of a row."""
        raise NotImplementedError


@engine_mutant("CLAIM-13", evidence="rows in the order they were put")
class ClaimNewestFirst(_Chooses):
    """Returns the newest ready rows first, so older rows wait as long as new ones arrive."""

    def order(self, partition_id: str, row: IndexRow) -> Any:
        return -row.age


@engine_mutant("CLAIM-13", evidence="rows in the order they were put")
class ClaimSortedById(_Chooses):
    """Returns rows sorted by id, so the last ids starve as long as new rows arrive."""

    def order(self, partition_id: str, row: IndexRow) -> Any:
        return row.sample_id


@engine_mutant("CLAIM-13", evidence="rows in the order they were put")
class ClaimSortedBySlot(RowSlots, _Chooses):
    """Returns rows by slot, so a row that reuses a cleared row's slot precedes older rows."""

    def order(self, partition_id: str, row: IndexRow) -> Any:
        return self._slots.get(partition_id, {}).get(row.sample_id, 0)
