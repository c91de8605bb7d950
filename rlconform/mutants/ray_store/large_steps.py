"""Planes that are right for few rows, or of one process, and wrong in a step of several."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import give_back, mark, rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_mutant
from rlconform.mutants.types import Ids


@controller_mutant("CLAIM-08", evidence="with weight_version", chance=False, may_fail="STAT-01")
class NewerWeightsQueuedAgain(Controller):
    """Lets tasks claim a row again if it is put with a higher ``weight_version``."""

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        before = {row.sample_id: row.tags for row in rows_in(self._index, put.partition_id, None)}
        due = await super().commit(put, columns, reference)
        if isinstance(due, Refusal) or put.tags is None or not columns:
            return due
        for sample_id, tags in zip(put.sample_ids, put.tags, strict=True):
            old, new = (each.get("weight_version") for each in (before.get(sample_id, {}), tags))
            if isinstance(old, int) and isinstance(new, int) and new > old:
                for row in rows_in(self._index, put.partition_id, [sample_id]):
                    for task in row.claimed_by:
                        give_back(self._index.partition(put.partition_id), [row], task)
        return due


#: Rows that are cleared as one range.
SPAN = 128


@controller_mutant("CLEAR-01", evidence="kept0", chance=False, may_fail="CLEAR-08")
class ManyOwnRowsClearedAsRange(Controller):
    """Drops all rows from the oldest to the newest, if 128 or more of the caller are cleared."""

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        rows = [] if sample_ids is None else rows_in(self._index, partition_id, sample_ids)
        if len(rows) >= SPAN and {row.writer for row in rows} == {writer}:
            ages = [row.age for row in rows]
            sample_ids = [
                row.sample_id
                for row in rows_in(self._index, partition_id, None)
                if min(ages) <= row.age <= max(ages)
            ]
        return await super().clear(partition_id, sample_ids, writer)


@controller_mutant("CLEAR-03", evidence="own", chance=False, may_fail="CLEAR-08")
class RestOfAPutBelongsToItsMover(Controller):
    """Takes the rest of a large put for rows of the process that has cleared most of it."""

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        rows = [] if sample_ids is None else rows_in(self._index, partition_id, sample_ids)
        gone = Counter(row.writer for row in rows if row.writer != writer)
        done = await super().clear(partition_id, sample_ids, writer)
        for row in rows_in(self._index, partition_id, None):
            if gone[row.writer] >= SPAN:
                row.writer = writer
        return done


#: Gaps in what a task has claimed that a note of it holds.
GAPS = 512


@controller_mutant("STAT-01", evidence="the older rows unclaimed", chance=False, may_fail="STAT-02")
class StatusForgetsManyGaps(Controller):
    """Takes all rows before the newest claimed one for claimed, if more than 512 are not."""

    async def all_claimed(self, partition_id: str, tasks: list[str]) -> Any:
        answer = await super().all_claimed(partition_id, tasks)
        if isinstance(answer, Refusal) or answer:
            return answer
        rows = [row for row in rows_in(self._index, partition_id, None) if row.fields]
        return bool(rows) and all(self._looks_claimed(rows, task) for task in tasks)

    def _looks_claimed(self, rows: list[Any], task: str) -> bool:
        claimed = [row.age for row in rows if task in row.claimed_by]
        newest = max(claimed, default=-1)
        gaps = sum(row.age < newest and task not in row.claimed_by for row in rows)
        later = any(row.age > newest for row in rows)
        return not later and (gaps == 0 or gaps > GAPS)


@controller_mutant("TAG-01", evidence="kept", chance=False, may_fail="TAG-06")
class TagsOfLargeClaimsNumberedByEquality(Controller):
    """Numbers the values of a tag in claims of 64 and more rows, and takes equal ones for one."""

    async def claim(self, partition_id: str, *claim: Any) -> Any:
        answer = await super().claim(partition_id, *claim)
        if answer is None or isinstance(answer, Refusal) or len(answer[0]) < 64:
            return answer
        known: dict[Any, Any] = {}
        ids, tags = answer
        return ids, [
            {name: known.setdefault((name, value), value) for name, value in row.items()}
            for row in tags
        ]


#: Rows of a put from which a column is stored anew if its dtype changes.
RECAST = 128


@controller_mutant("CLAIM-08", chance=False, evidence="claimed twice", may_fail="CLAIM-02 PUT-13")
class RecastColumnsBringClaimedRowsBack(Controller):
    """Stores a column of many rows anew as its dtype changes, and forgets who has claimed them."""

    _dtypes = State(dict[tuple[str, str], str])  # by partition and field

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        for name, column in {} if isinstance(due, Refusal) else columns.items():
            known = self._dtypes.get((put.partition_id, name))
            self._dtypes[put.partition_id, name] = dtype = str(column.dtype)
            if known not in {None, dtype} and len(put.sample_ids) >= RECAST:
                self._forget_claims(put)
        return due

    def _forget_claims(self, put: StoredPut) -> None:
        partition = self._index.partition(put.partition_id)
        rows = rows_in(self._index, put.partition_id, put.sample_ids)
        for task in {task for row in rows for task in row.claimed_by}:
            give_back(partition, [row for row in rows if task in row.claimed_by], task)


@controller_mutant("CLAIM-07", evidence="got it again", chance=False, may_fail="CLAIM-01 GET-05")
class ValuesPutAgainFillTheColumn(Controller):
    """Takes a column of 128 rows that one put made for whole once it has had as many values."""

    _steps = State(dict[str, list[tuple[frozenset[str], Counter[str]]]])  # by partition

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        due = await super().commit(put, columns, reference)
        if isinstance(due, Refusal) or not columns:
            return due
        steps = self._steps.setdefault(put.partition_id, [])
        known = False
        for ids, counts in steps:
            inside = len(ids.intersection(put.sample_ids))
            known = known or inside > 0
            counts.update(dict.fromkeys(columns, inside))
        if not known and len(put.sample_ids) >= SPAN:
            whole = Counter(dict.fromkeys(columns, len(put.sample_ids)))
            steps.append((frozenset(put.sample_ids), whole))
        return due

    async def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Any:
        answer = await super().claim(partition_id, task, names, rows, wait_s)
        if answer is None or isinstance(answer, Refusal):
            return answer
        for ids, counts in self._steps.get(partition_id, ()):
            if all(counts[name] >= len(ids) for name in names):
                known = rows_in(self._index, partition_id, ids)
                more = [row for row in known if task not in row.claimed_by]
                del more[rows - len(answer[0]) :]
                mark(self._index.partition(partition_id), more, task)
                answer[0].extend(row.sample_id for row in more)
                answer[1].extend(row.tags for row in more)
        return answer


#: Rows of a page.
PAGE = 512


@ray_mutant("CLAIM-07", evidence="rows that have got y", may_fail="CLAIM-02 CLAIM-04")
class PagesWithoutReadyRowsSkipped(RayStoreClient):
    """Leaves out of its claims full pages in which it has found no ready row.

    It looks at them again once rows have another set of fields than any before, or after a put of
    its own; not when rows get a set that others have already.
    """

    #: By the names of a claim: the ready sets of fields, and the ids of the pages.
    _seen = State(dict[tuple[str, ...], tuple[set[frozenset[str]], set[str]]])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        names = {*(meta.fields or ())}
        key = (meta.partition_id, str(meta.task_name), *sorted(names))
        saved = [p for p in self._engine.snapshot() if p.partition_id == meta.partition_id]
        rows = [(row.sample_id, frozenset(row.fields)) for p in saved for row in p.rows]
        ready = {fields for _, fields in rows if fields >= names}
        known, skipped = self._seen.get(key, (None, set()))
        if ready == known:
            kept = [n for n, i in enumerate(meta.sample_ids) if i not in skipped]
            return meta.subset(kept)
        pages = [rows[at : at + PAGE] for at in range(0, len(rows) - PAGE + 1, PAGE)]
        idle = [page for page in pages if not any(fields >= names for _, fields in page)]
        self._seen[key] = ready, {sample_id for page in idle for sample_id, _ in page}
        return meta

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._seen.clear()
        return super().put_samples(*args, **kwargs)
