"""Claims that order rows wrongly or split them by ``dp_rank``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlconform.backends.index.row import IndexRow
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, applied
from rlconform.mutants.memory.helpers import (
    claim_meta_mutant,
    claim_mutant,
    claimed_rows,
    find_rows,
    give_back,
    known_rows,
    mark,
    names_of,
    partition_of,
    put_mutant,
)
from rlconform.mutants.memory.slot_helpers import RowSlots
from rlconform.mutants.types import Claimed


def _claim_of_rank(claim: MethodCall, has_own_cursor: Callable[[int | None], bool]) -> Any:
    """Claim with a separate cursor for each rank for which ``has_own_cursor`` is true."""
    rank, task = claim.dp_rank, claim.task_name
    if not has_own_cursor(rank):
        return claim()
    partition = partition_of(claim)
    if task in partition._tasks:
        partition._tasks.add(f"{task} of rank {rank}")
    meta = claim(task_name=f"{task} of rank {rank}")
    mark(partition, find_rows(claim.plane._engine, claim.partition_id, meta.sample_ids), task)
    return replace(meta, task_name=task)


#: Decorator of a function that returns whether a rank has a separate cursor.
rank_mutant = applied(claim_meta_mutant, _claim_of_rank)


@rank_mutant(
    "CLAIM-12", evidence="claims by id over two ranks", may_fail="CLAIM-02 CLAIM-10 STAT-01"
)
def ClaimCursorPerRank(rank: int | None) -> bool:
    """Returns all rows to every rank, as a broadcast does."""
    return rank is not None


@rank_mutant(
    "CLAIM-12", evidence="claims by id over two ranks", may_fail="CLAIM-02 CLAIM-10 STAT-01"
)
def ClaimRankZeroIsNone(rank: int | None) -> bool:
    """Tests ``if dp_rank``, so every rank except rank 0 has a separate cursor."""
    return bool(rank)


def _dealt(claim: MethodCall, ranks: int) -> Any:
    """Claim only the rows whose number modulo ``ranks`` equals the rank's."""
    if claim.dp_rank is None or claim.blocking:
        return claim()
    meta = claim(batch_size=1 << 20)
    rows = find_rows(claim.plane._engine, claim.partition_id, meta.sample_ids)
    mine = [n for n, row in enumerate(rows) if row.age % ranks == claim.dp_rank % ranks]
    mine = mine[: claim.batch_size]
    rest = [row for n, row in enumerate(rows) if n not in mine]
    give_back(partition_of(claim), rest, claim.task_name)
    return meta.subset(mine)


@claim_meta_mutant("CLAIM-12", evidence="rows of the one rank that asks")
def ClaimDealtToTwoRanks(claim: MethodCall) -> KVBatchMeta:
    """Assigns each row to one of two ranks, so rows of a rank that never claims stay unclaimed."""
    return _dealt(claim, 2)


@claim_meta_mutant("CLAIM-12", evidence="claims by id over two ranks", may_fail="CLAIM-02")
def ClaimDealtToEightRanks(claim: MethodCall) -> KVBatchMeta:
    """Assigns each row to one of eight configured ranks, even if fewer ranks claim."""
    return _dealt(claim, 8)


@claim_meta_mutant("CLAIM-12", evidence="all but one rank gone", may_fail="CLAIM-02")
def ClaimLeavesEachRankItsLastRow(claim: MethodCall) -> KVBatchMeta:
    """Deals rows to the ranks that have claimed; other ranks may claim all of them but the last.

    Queues in which an idle worker steals from others do so; a rank that is gone keeps one row.
    """
    key, rank = (claim.partition_id, claim.task_name), claim.dp_rank
    ranks, owners = claim.notes.setdefault(key, ([], {}))
    if rank is None or claim.blocking:
        return claim()
    meta = claim(batch_size=1 << 20)
    rows = find_rows(claim.plane._engine, claim.partition_id, meta.sample_ids)
    for row in rows:
        owners.setdefault(row, ranks[row.age % len(ranks)] if ranks else None)
    if rank not in ranks:
        ranks.append(rank)
    last = {owners[row]: row for row in rows if owners[row] not in {None, rank}}.values()
    mine = [n for n, row in enumerate(rows) if row not in last][: claim.batch_size]
    rest = [row for n, row in enumerate(rows) if n not in mine]
    give_back(partition_of(claim), rest, claim.task_name)
    return meta.subset(mine)


def _claim_by(claim: MethodCall, order: Callable[[IndexRow], Any]) -> Any:
    """Claim the ready rows for which ``order`` is smallest."""
    with claim.plane._locked() as index:
        partition = index.partition(claim.partition_id)
        if claim.wait_s is not None or partition._group_size > 1:
            return claim()
        ready = partition.claim(claim.task, frozenset(claim.names), 1 << 20)
        ready.sort(key=order)
        give_back(partition, ready[claim.rows :], claim.task)
        return claimed_rows(ready[: claim.rows])


#: Decorator of a function that returns the sort key of a row.
order_mutant = applied(claim_mutant, _claim_by)


@order_mutant("CLAIM-13", evidence="rows in the order they were put")
def ClaimNewestFirst(row: IndexRow) -> int:
    """Returns the newest ready rows first, so older rows wait as long as new ones arrive."""
    return -row.age


@order_mutant("CLAIM-13", evidence="rows in the order they were put")
def ClaimSortedById(row: IndexRow) -> str:
    """Returns rows sorted by id, so the last ids wait as long as new rows arrive."""
    return row.sample_id


@claim_mutant("CLAIM-13", evidence="rows in the order they were put", plane=RowSlots)
def ClaimSortedBySlot(claim: MethodCall) -> Claimed:
    """Returns rows by slot, so a row that reuses a cleared row's slot precedes older rows."""
    slots = claim.plane._slots.get(claim.partition_id, {})
    return _claim_by(claim, lambda row: slots.get(row.sample_id, 0))


@put_mutant("CLAIM-13", evidence="rows in the order they were put first")
def OverwrittenRowBecomesNewest(put: MethodCall) -> None:
    """Replaces a row as REPLACE INTO does: the new one is behind all others."""
    names = names_of(put.fields)
    again = [row for row in known_rows(put) if names & row.fields]
    put()
    partition = partition_of(put)
    for row in again if partition._group_size == 1 else ():
        partition._queues.discard([row])
        row.age = partition._next_age
        partition._next_age += 1
        partition._queues.feed([(row, row.fields)])
