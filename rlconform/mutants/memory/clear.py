"""Clears that remove too many or too few rows, or reject what they must accept."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

from tensordict import TensorDict

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import UnknownPartition, UnknownSample
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.helpers import (
    PAGE,
    claimed_rows,
    clear_mutant,
    clear_samples_mutant,
    engine_mutant,
    find_rows,
    held,
    known_rows,
    mark,
    names_of,
    partition_of,
    partitions_of,
    rows_in,
)
from rlconform.mutants.memory.slot_helpers import ReusesSlots
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names, Wait

#: The rows of the partition, by id.
Rows = dict[str, IndexRow]

#: Adjacent rows that are cleared as a range.
RUN = 256

#: Decorator of a function that returns the ids to clear in place of the caller's ids.
ids_mutant = applied(
    clear_mutant,
    lambda clear, ids: clear(sample_ids=ids(dict(partition_of(clear)._rows), clear.sample_ids)),
)


@ids_mutant("CLEAR-01", evidence="UnknownSample")
def ClearTakesIdsByPrefix(rows: Rows, ids: Ids | None) -> Ids | None:
    """Clears every id that starts with a given id, so ``u0_g1`` also clears ``u0_g10``."""
    return ids and [i for i in rows if i.startswith(tuple(ids))]


@ids_mutant(
    "CLEAR-01", evidence="never put, or cleared", may_fail="REG-04 STAT-01 CLEAR-04 CLAIM-10"
)
def ClearTakesWholeRange(rows: Rows, ids: Ids | None) -> Ids | None:
    """Clears all rows stored between the first and the last given id, also other rows."""
    ages = [rows[i].age for i in ids or [] if i in rows]
    return ids and [i for i in rows if ages and min(ages) <= rows[i].age <= max(ages)]


@ids_mutant("CLEAR-01", evidence="UnknownSample", may_fail="CLEAR-02 CLEAR-05")
def ClearDuplicateIdTakesNextRow(rows: Rows, ids: Ids | None) -> Ids | None:
    """Clears by position, so an id that is given twice also clears the next row."""
    places, given = list(rows), ids or []
    twice = {i for i in given if given.count(i) > 1 and i in rows}
    return ids and [*ids, *(places[places.index(i) + 1] for i in twice if i != places[-1])]


@ids_mutant("CLEAR-01 CLEAR-03", evidence="not to be readable", may_fail="STAT-05")
def ClearLimitedToPage(rows: Rows, ids: Ids | None) -> Ids | None:
    """Clears only the first 100 rows, the limit of one request."""
    return (list(rows) if ids is None else ids)[:PAGE]


@ids_mutant("CLEAR-01", evidence="UnknownSample", may_fail="CLAIM-04 REG-05")
def LargeClearTakesRangesOfGroups(rows: Rows, ids: Ids | None) -> Ids | None:
    """Writes a large clear as a range of ids per group, and clears what lies between its ends."""
    if ids is None or len(ids) < 256:
        return ids
    ranges: dict[str, tuple[str, str]] = {}
    for each in ids:
        low, high = ranges.get(group := each.rpartition("_g")[0], (each, each))
        ranges[group] = min(low, each), max(high, each)
    last = "", ""
    return [i for i in rows if (span := ranges.get(i.rpartition("_g")[0], last))[0] <= i <= span[1]]


@clear_mutant("CLEAR-02", evidence="UnknownSample")
def ClearUnknownIdsRejected(clear: MethodCall) -> None:
    """Raises an error for a clear of rows that don't exist (TQ-12)."""
    if clear.sample_ids and not known_rows(clear):
        raise UnknownSample(f"none of {clear.sample_ids} is here")
    clear()


@clear_mutant("CLEAR-02", evidence="not to be readable", may_fail="CLEAR-01")
def ClearUnknownIdStopsClear(clear: MethodCall) -> None:
    """Silently clears nothing if one of the ids is unknown (TQ-12)."""
    if clear.sample_ids is None or len(known_rows(clear)) == len(clear.sample_ids):
        clear()


@clear_samples_mutant("CLEAR-02", evidence="never put, or cleared", may_fail="CLEAR-01")
def ClearEmptyIdsClearsAll(clear: MethodCall) -> None:
    """Tests ``if not sample_ids``, so an empty list clears all rows."""
    clear(sample_ids=None if clear.sample_ids == [] else clear.sample_ids)


@ids_mutant("CLEAR-03", evidence="no tag of what was cleared", may_fail="CLEAR-04")
def ClearAllSparesTagOnlyRows(rows: Rows, ids: Ids | None) -> Ids | None:
    """Keeps rows that have only tags when ``sample_ids`` is None."""
    return [i for i in rows if rows[i].fields] if ids is None else ids


@ids_mutant("CLEAR-03", evidence="not to be readable", may_fail="CLEAR-01 CLEAR-04 REG-03 CLAIM-10")
def ClearAllSparesClaimedRows(rows: Rows, ids: Ids | None) -> Ids | None:
    """Keeps claimed rows when ``sample_ids`` is None: it clears only its queue of other rows."""
    return [i for i in rows if not rows[i].claimed_by] if ids is None else ids


@ids_mutant("CLEAR-03", evidence="not to be readable", may_fail="CLEAR-01 CLEAR-04 REG-03")
def ClearAllSparesPutsWithoutFirstRow(rows: Rows, ids: Ids | None) -> Ids | None:
    """Finds puts by their first id, so None keeps the other rows once that id was cleared."""
    if ids is not None:
        return ids
    return [i for i in rows if all(block.sample_ids[0] in rows for block, *_ in rows[i].parts)]


@clear_mutant("CLEAR-03", evidence="UnknownPartition")
def ClearUnknownPartitionRejected(clear: MethodCall) -> None:
    """Raises an error for a clear of all rows in an unknown partition (TQ-12)."""
    if clear.sample_ids is None and clear.partition_id not in partitions_of(clear.plane):
        raise UnknownPartition(clear.partition_id)
    clear()


@engine_mutant("CLEAR-03", evidence="not to be readable")
class ClearAllSparesOtherThreads(MemoryEngine):
    """Clears only rows that the calling thread has put when ``sample_ids`` is None."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        with self._locked() as index:
            super().put(partition_id, sample_ids, fields, tags)
            for row in rows_in(index, partition_id, sample_ids):
                if not row.writer:
                    index.partition(partition_id)._change_writer(row, str(threading.get_ident()))

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        if sample_ids is None:
            sample_ids = held(self, partition_id).rows_of(str(threading.get_ident()))
        super().clear(partition_id, sample_ids)


#: Threads of which a plane knows the rows.
SESSIONS = 8


@engine_mutant("CLEAR-03", evidence="not to be readable")
class ClearAllSparesOldestThreads(MemoryEngine):
    """Keeps a session for each of the 8 threads that have put last; None clears their rows."""

    _sessions = State(dict[int, None])  # by thread, the newest last

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        with self._locked() as index:
            super().put(partition_id, sample_ids, fields, tags)
            thread = threading.get_ident()
            self._sessions = {**{k: None for k in self._sessions if k != thread}, thread: None}
            for row in rows_in(index, partition_id, sample_ids):
                index.partition(partition_id)._change_writer(row, str(thread))

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        if sample_ids is None:
            known = list(self._sessions)[-SESSIONS:]
            rows = held(self, partition_id)
            sample_ids = [i for thread in known for i in rows.rows_of(str(thread))]
        super().clear(partition_id, sample_ids)


@ids_mutant("CLEAR-05", evidence="no tag of the first put")
def ClearTagOnlyRowsAmongOthersSpared(rows: Rows, ids: Ids | None) -> Ids | None:
    """Keeps rows that have only tags if other rows in the same clear have fields."""
    return [i for i in ids or [] if i in rows and rows[i].fields] or ids


@clear_mutant("CLEAR-05 CLEAR-03", evidence="UnknownSample", may_fail="STAT-05 CLEAR-01")
def ClearTagOnlyRowsRejected(clear: MethodCall) -> None:
    """Raises an error for a clear of a row that has tags and no fields (TQ-13)."""
    if not all(row.fields for row in known_rows(clear)):
        raise UnknownSample("a row has no fields")
    clear()


@engine_mutant("CLEAR-04", evidence="cleared while they were absent", may_fail="CLEAR-02")
class ClearOfAbsentIdsLeavesTombstones(MemoryEngine):
    """Marks unknown ids of a clear as deleted, so claims never return rows put later with them."""

    _deleted = State(set[tuple[str, str]])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        known = {row.sample_id for row in find_rows(self, partition_id, None)}
        self._deleted |= {(partition_id, i) for i in sample_ids or () if i not in known}
        super().clear(partition_id, sample_ids)

    def claim(self, partition_id: str, *args: Any, **kwargs: Any) -> Claimed:
        ids, tags = super().claim(partition_id, *args, **kwargs)
        shown = [n for n, i in enumerate(ids) if (partition_id, i) not in self._deleted]
        return [ids[n] for n in shown], [tags[n] for n in shown]


@ids_mutant("CLEAR-01", evidence="rows left")
def ClearTakesRowAfterLongRun(rows: Rows, ids: Ids | None) -> Ids | None:
    """Clears the row after a run of 256 or more adjacent rows together with the run.

    Log-structured stores delete such a run as one range, and confuse inclusive and exclusive ends.
    """
    stored, given = list(rows), set(ids or [])
    after = [n for n, i in enumerate(stored) if n >= RUN and i not in given]
    return ids and [*ids, *(stored[n] for n in after if given.issuperset(stored[n - RUN : n]))]


@engine_mutant("CLEAR-01", evidence="row 0 of 'x'")
class ClearFreesSlotOfRepeatedIdTwice(ReusesSlots):
    """Puts a row's slot on the free list twice if a clear names the id twice.

    Stores that look up all slots before they delete the rows do so; then two new rows share a slot.
    """

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        keys = [(partition_id, i) for i, times in Counter(sample_ids).items() if times > 1]
        twice = [self._slots[key] for key in keys if key in self._slots]
        super().clear(partition_id, sample_ids)
        self._free[partition_id] += twice

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        slots = [(partition_id, self._slots.get((partition_id, i), -1)) for i in sample_ids]
        owners = [self._owners.get(slot, i) for slot, i in zip(slots, sample_ids, strict=True)]
        return super().get(partition_id, owners, names)


@engine_mutant("CLEAR-04", evidence="a new row with y alone", may_fail="CLAIM-01")
class ClearKeepsMissingFields(MemoryEngine):
    """Keeps the record of the fields that a row lacks over a clear, so a part of them completes it.

    Planes that note in a claim what each row lacks, so that puts know which rows get ready, do so.
    """

    _lacks = State(dict[tuple[str, str, str], set[str]])  # by partition, task and row

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        for (where, _, sample_id), lacking in self._lacks.items():
            if where == partition_id and sample_id in sample_ids:
                lacking.difference_update(names_of(fields))

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        unready = [
            row
            for row in find_rows(self, partition_id)
            if row.fields and not row.fields.issuperset(names) and task not in row.claimed_by
        ]
        completed = []
        for row in unready:
            missing = set(names) - row.fields
            if not self._lacks.setdefault((partition_id, task, row.sample_id), missing):
                completed.append(row)
        completed = completed[: rows - len(ids)]
        with self._locked():
            mark(held(self, partition_id), completed, task)
        more_ids, more_tags = claimed_rows(completed)
        return ids + more_ids, tags + more_tags
