"""Defects that look at a part: of the rows, of a long value, of the tasks, of a group."""

from __future__ import annotations

import time
from collections import Counter
from itertools import islice
from typing import Any

from tensordict import TensorDict

from rlconform.backends.index import IndexRow
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    claim_mutant,
    claimed_rows,
    clear_mutant,
    engine_mutant,
    held,
    mark,
    partition_of,
    put_mutant,
    rows_in,
)
from rlconform.mutants.types import Claimed, Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows

#: Rows of a page, and unclaimed rows that a claim looks at.
_PAGE = 64


@put_mutant("TAG-01", evidence="tags of rows of three puts", may_fail="TAG-04 RANK-02")
def TagsCutInOrderOfPuts(put: MethodCall) -> None:
    """Cuts the tags of a write-back in the order in which its rows were put."""
    with put.plane._plane.changed:
        rows = rows_in(put.plane._plane.index, put.partition_id, put.sample_ids)
        tags = put.tags
        if tags and put.fields is not None and len(rows) == len(put.sample_ids):
            order = sorted(range(len(rows)), key=lambda n: _first_put(rows[n]))
            tags = [tags[order.index(n)] for n in range(len(rows))]
        put(tags=tags)


def _first_put(row: IndexRow) -> int:
    return row.parts[0][0].number if row.parts else 0


@clear_mutant("CLEAR-03", evidence="not to be readable")
def ClearAllStopsAtRowWithoutFields(clear: MethodCall) -> None:
    """Clears everything page by page, and stops at a page that has a row without fields."""
    rows = rows_in(clear.plane._plane.index, clear.partition_id, None)
    if clear.sample_ids is not None or not rows:
        return clear()
    for start in range(0, len(rows), _PAGE):
        page = rows[start : start + _PAGE]
        whole = all(row.fields for row in page)
        clear(sample_ids=[row.sample_id for row in page])
        if not whole:
            return None
    return None


@put_mutant("PUT-21", evidence="log", may_fail="PUT-27 PUT-28")
def LongTextsKnownByTheirEnds(put: MethodCall) -> None:
    """Stores texts of a put once if their lengths, first 1,024 and last 64 characters are equal."""
    fields = put.fields
    if isinstance(fields, TensorDict):
        fields = fields.copy()
        for name in map(str, list(fields.keys())):
            if is_object_column(fields.get(name)):
                known: dict[Any, Any] = {}
                rows = [
                    known.setdefault((len(row), row[:1024], row[-64:]), row)
                    if isinstance(row, str) and len(row) > 2048
                    else row
                    for row in object_rows(fields.get(name), len(put.sample_ids))
                ]
                fields.set(name, object_column(rows))
    put(fields=fields)


@claim_mutant("CLAIM-04", evidence="rows with both fields", may_fail="CLAIM-02 CLAIM-07 STAT-01")
def ClaimLooksAtOldestRows(claim: MethodCall) -> Claimed:
    """Looks for ready rows among the oldest ones that the task has not claimed."""
    partition = partition_of(claim)
    if claim.wait_s is not None or partition._group_size > 1 or claim.task not in partition._tasks:
        claimed: Claimed = claim()
        return claimed
    with claim.plane._plane.changed:
        unclaimed = (row for row in partition._rows.values() if claim.task not in row.claimed_by)
        oldest = list(islice(unclaimed, max(_PAGE, 4 * claim.rows)))
        ready = [row for row in oldest if row.fields.issuperset(claim.names)][: claim.rows]
        mark(partition, ready, claim.task)
        return claimed_rows(ready)


@engine_mutant("CLAIM-09", evidence="no sample", may_fail="REG-07 GET-11 STAT-01")
class RowsClaimedAndReadGiveWay(MemoryEngine):
    """Drops the oldest rows that every task has claimed and somebody has read, for more rows."""

    _read = State(dict[tuple[str, str], IndexRow])

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        batch = super().get(partition_id, sample_ids, names)
        for row in rows_in(self._plane.index, partition_id, sample_ids):
            self._read[partition_id, row.sample_id] = row
        return batch

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        partition = held(self, partition_id)
        done = [
            i
            for i, row in partition._rows.items()
            if self._read.get((partition_id, i)) is row and row.claimed_by >= partition._tasks
        ]
        if len(partition._rows) > 4 * _PAGE:
            self.clear(partition_id, [i for i in done if i not in ids])


@engine_mutant("STAT-01", evidence="of a task left out", may_fail="STAT-05")
class ClearsCountForRegisteredTasks(MemoryEngine):
    """Lowers what the tasks of the newest registration have claimed when rows are cleared."""

    _listed = State(dict[str, list[str]])

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._listed[partition_id] = tasks

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        before = rows_in(self._plane.index, partition_id, sample_ids)
        forgotten = Counter(
            task
            for row in before
            for task in row.claimed_by
            if task not in self._listed.get(partition_id, ())
        )
        super().clear(partition_id, sample_ids)
        if rows_in(self._plane.index, partition_id, None):
            held(self, partition_id)._claimed.update(forgotten)


@claim_mutant("CLAIM-15", evidence="rows of the whole group", may_fail="CLAIM-08 CLEAR-04")
def RegeneratedRowsAreAGroup(claim: MethodCall) -> Claimed:
    """Claims the rows of a whole group that the task has not claimed, however few they are."""
    ids, tags = claim()
    partition = partition_of(claim)
    if claim.wait_s is None and partition._group_size > 1:
        groups: dict[Any, list[IndexRow]] = {}
        for row in partition._rows.values():
            groups.setdefault(row.group, []).append(row)
        for group in groups.values():
            rest = [row for row in group if claim.task not in row.claimed_by]
            whole = len(group) == partition._group_size
            ready = all(row.fields.issuperset(claim.names) for row in group)
            if whole and ready and 0 < len(rest) < len(group) <= claim.rows - len(ids):
                mark(partition, rest, claim.task)
                more = claimed_rows(rest)
                ids, tags = [*ids, *more[0]], [*tags, *more[1]]
    return ids, tags


@engine_mutant("CLAIM-05", evidence="the blocked claim", may_fail="REG-03")
class WaiterStaysAtPartitionBefore(MemoryEngine):
    """Registers an emptied partition as a new one, and wakes no claim that waits at the old."""

    _renewed = State(Counter[str])

    def register(self, partition_id: str, tasks: list[str], group_size: int) -> None:
        before = held(self, partition_id)
        self._renewed[partition_id] += before._ever_produced and not before._rows
        super().register(partition_id, tasks, group_size)

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        deadline, number = time.monotonic() + wait_s, self._renewed[partition_id]
        while True:
            partition = self._plane.index.partition(partition_id)
            partition.check_exact(rows)
            here = number == self._renewed[partition_id]
            if here and partition.is_ready(task, required, rows):
                return
            if not self._plane.changed.wait(max(0.0, deadline - time.monotonic())):
                raise TimeoutError("too few rows")
            self.check_open()
