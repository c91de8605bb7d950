"""Claims that go wrong after many claims, rows or cycles."""

from __future__ import annotations

from rlconform.backends.index import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    claim_meta_mutant,
    claim_mutant,
    engine_mutant,
    find_rows,
    give_back,
    mark,
    partition_of,
    put_mutant,
)
from rlconform.mutants.types import Claimed, Ids


@claim_mutant("CLAIM-02", evidence="claims of one row each")
def ClaimRedeliversTwoHundredth(claim: MethodCall) -> Claimed:
    """Delivers the rows of every 200th claim again, because its log of acknowledgements wraps."""
    claimed: Claimed = claim()
    made = claim.notes[claim.task] = claim.notes.get(claim.task, 0) + bool(claimed[0])
    if made % 200 == 0 and claimed[0]:
        rows = find_rows(claim.plane, claim.partition_id, claimed[0])
        give_back(partition_of(claim), rows, claim.task)
    return claimed


@claim_meta_mutant("TAG-01", evidence="its own tags on each of 10304 rows", may_fail="TAG-06")
def ClaimTagsEndAfterThousand(claim: MethodCall) -> KVBatchMeta:
    """Returns the tags of the first 1,000 rows of a claim, and empty tags for the rest."""
    meta: KVBatchMeta = claim()
    for tags in (meta.tags or [])[1000:]:
        tags.clear()
    return meta


@claim_meta_mutant("TAG-01", evidence="tags of rows with 40 each")
def ClaimTagsLimitedTo32(claim: MethodCall) -> KVBatchMeta:
    """Returns at most 32 tags of a row."""
    meta: KVBatchMeta = claim()
    for tags in meta.tags or []:
        for name in list(tags)[32:]:
            del tags[name]
    return meta


@engine_mutant("REG-03", evidence="rows claimed in step 256")
class ClearGenerationInEightBits(MemoryEngine):
    """Marks claims with the number of clears in 8 bits, so marks of 256 clears ago count again."""

    _clears = State(dict[str, int])
    _marks = State(dict[tuple[str, int], set[tuple[str, str]]])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        self._clears[partition_id] = self._clears.get(partition_id, 0) + 1

    def claim(self, partition_id: str, task: str, *args: object) -> Claimed:
        ids, tags = super().claim(partition_id, task, *args)  # type: ignore[arg-type]
        generation = self._clears.get(partition_id, 0) % 256
        marks = self._marks.setdefault((partition_id, generation), set())
        old = [n for n, i in enumerate(ids) if (task, i) in marks]
        marks.update((task, i) for i in ids)
        keep = [n for n in range(len(ids)) if n not in old]
        return [ids[n] for n in keep], [tags[n] for n in keep]


#: Rows for which a partition has room.
ROOM = 1024


@put_mutant("CLAIM-09", evidence="never put, or cleared")
def PutTakesRoomOfClaimedRows(put: MethodCall) -> None:
    """Has room for 1,024 rows; a put beyond takes that of rows which every task has claimed.

    Rings do so: the oldest rows that everybody has claimed make room for new ones.
    """
    put()
    with put.plane._locked():
        partition = partition_of(put)
        done = [i for i, row in partition._rows.items() if partition._tasks <= row.claimed_by]
        put.plane.clear(put.partition_id, done[: max(0, partition.size - ROOM)])


@claim_mutant("CLAIM-04", evidence="rows of one claim after 300 puts", may_fail="CLAIM-02")
def ClaimOpensThirtyTwoPuts(claim: MethodCall) -> Claimed:
    """Takes rows of at most 32 puts in a claim that does not block, so that its cost is bounded."""
    ids, tags = claim()
    if claim.wait_s is not None:
        return ids, tags
    rows = list(find_rows(claim.plane, claim.partition_id, ids))
    puts = list(dict.fromkeys(row.parts[0][0].number for row in rows))[:32]
    kept = [row.parts[0][0].number in puts for row in rows]
    late = [row for row, stays in zip(rows, kept, strict=True) if not stays]
    give_back(partition_of(claim), late, claim.task)
    return (
        [one for one, stays in zip(ids, kept, strict=True) if stays],
        [one for one, stays in zip(tags, kept, strict=True) if stays],
    )


#: Ranges of claimed rows that a plane keeps of each task.
RANGES = 100


@claim_mutant("CLAIM-07", evidence="whether they are every", may_fail="CLAIM-02")
def ClaimedRangesMerged(claim: MethodCall) -> Claimed:
    """Keeps the claimed rows of a task as 100 ranges, and joins the oldest where there are more.

    The rows between them, which were not ready yet, count as claimed.
    """
    claimed: Claimed = claim()
    with claim.plane._locked():
        partition = partition_of(claim)
        gaps: list[list[IndexRow]] = [[]]
        for row in partition._rows.values():
            if claim.task not in row.claimed_by:
                gaps[-1].append(row)
            elif gaps[-1]:
                gaps.append([])
        for gap in gaps[1 : len(gaps) - RANGES]:  # the first rows and the last lie in no gap
            mark(partition, gap, claim.task)
    return claimed


#: Rows that a plane remembers as passed over by the claims of a task.
PASSED_OVER = 4096


@claim_mutant("CLAIM-02", evidence="all rows, once they have y", may_fail="CLAIM-07 STAT-01")
def ClaimForgetsRowsPassedOver(claim: MethodCall) -> Claimed:
    """Remembers the last 4,096 rows that claims of a task found incomplete, and no others.

    It looks at each row once, and then only at those that it remembers.
    """
    claimed: Claimed = claim()
    with claim.plane._locked():
        partition = partition_of(claim)
        incomplete = [
            row
            for row in partition._rows.values()
            if row.fields and claim.task not in row.claimed_by and not {*claim.names} <= row.fields
        ]
        mark(partition, incomplete[:-PASSED_OVER], claim.task)
    return claimed


#: Rows for which a plane has room at first.
FIRST_ROOM = 2048


@put_mutant("CLAIM-02", evidence="others were claimed", may_fail="STAT-01 CLAIM-04")
def RoomIsMadeOfOldClaims(put: MethodCall) -> None:
    """Doubles its room by repeating the marks of claims, so that new rows count as claimed."""
    partition = partition_of(put)
    before = list(partition._rows.values())
    put()
    if len(before) <= FIRST_ROOM < partition.size:
        new = list(partition._rows.values())[FIRST_ROOM:]
        for row, old in zip(new, before, strict=False):
            for task in old.claimed_by:
                mark(partition, [row], task)
