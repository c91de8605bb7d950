"""Consumption statuses that miss what other processes have put, cleared or claimed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from ray.experimental import internal_kv

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, Names


@ray_mutant("STAT-02", evidence="status", may_fail="FLOW-03 STAT-01 LOAD-01 CLAIM-02")
class StatusCountsOwnCallsOnly(RayStoreClient):
    """Counts only the rows that the asking process itself has put and claimed."""

    _claimed = State(Counter[tuple[str, str]])
    _put = State(dict[str, set[str]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *a: Any, **k: Any) -> Any:
        meta = super().put_samples(sample_ids, partition_id, *a, **k)
        if meta.fields:
            self._put.setdefault(partition_id, set()).update(sample_ids)
        return meta

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        self._claimed[meta.partition_id, str(meta.task_name)] += meta.size
        return meta

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        answer = super().check_consumption_status(partition_id, task_names)
        put = len(self._put.get(partition_id, ()))
        return answer and any(self._claimed[partition_id, task] >= put for task in task_names)


@ray_mutant("STAT-02", evidence="status after as many rows were put as cleared", may_fail="STAT-01")
class StatusTrueUntilCountChanges(RayStoreClient):
    """Repeats an answer of True until the same process writes or the number of rows changes."""

    _rows = State(dict[tuple[str, ...], int])

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        answer = super().check_consumption_status(partition_id, task_names)
        key, rows = (partition_id, *task_names), len(self.list_sample_ids(partition_id))
        if answer:
            self._rows[key] = rows
        return self._rows.get(key) == rows

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._rows.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._rows.clear()
        super().clear_samples(*args, **kwargs)


@ray_mutant("STAT-01", evidence="status after such a row got", may_fail="STAT-02")
class StatusTrueUntilIdsChange(RayStoreClient):
    """Repeats an answer of True until the same process writes or the partition has other ids.

    Fields of a row that had only tags add no id, so they are missed if another process puts them.
    """

    _ids = State(dict[tuple[str, ...], list[str]])

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        answer = super().check_consumption_status(partition_id, task_names)
        key, ids = (partition_id, *task_names), self.list_sample_ids(partition_id)
        if answer:
            self._ids[key] = ids
        return bool(ids) and self._ids.get(key) == ids

    def register_partition(self, *args: Any, **kwargs: Any) -> None:
        self._ids.clear()
        super().register_partition(*args, **kwargs)

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._ids.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._ids.clear()
        super().clear_samples(*args, **kwargs)


@ray_mutant("STAT-01", evidence="status after two processes claimed all rows")
class StatusOfLastProcessOfRank(RayStoreClient):
    """Counts, for each rank, only the rows claimed by the process of that rank that claimed last.

    Each process saves its claimed rows under its rank, and so overwrites those of another process.
    """

    _claimed = State(dict[str, list[str]])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        rank, client = kwargs.get("dp_rank"), f"{process_id()} {id(self)}"
        key = f"{self._key(meta.partition_id, meta.task_name)}{client if rank is None else rank}"
        if meta.sample_ids:
            rows = self._claimed.setdefault(key, [])
            rows += meta.sample_ids
            internal_kv._internal_kv_put(key, json.dumps(rows))
        return meta

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        answer = super().check_consumption_status(partition_id, task_names)
        rows = set(self.list_sample_ids(partition_id))
        return answer and all(rows <= self._saved(partition_id, task) for task in task_names)

    def _key(self, partition_id: str, task: str | None) -> str:
        return f"{self._connection._controller._actor_id.hex()} {partition_id} {task} "

    def _saved(self, partition_id: str, task: str) -> set[str]:
        keys = internal_kv._internal_kv_list(self._key(partition_id, task))
        return {i for key in keys for i in json.loads(internal_kv._internal_kv_get(key))}


class _AsksAsProcess(ControllerClient):
    """A client that sends its process with a question for the status, for ``all_claimed_for``."""

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        call = self._connection.call

        def call_as_process(method: str, *args: Any) -> Any:
            if method == "all_claimed":
                return call("all_claimed_for", process_id(), *args)
            return call(method, *args)

        self._connection.call = call_as_process


class _KeepsUnknownTasks(Controller):
    _unknown = State(set[tuple[str, str, str]])

    async def all_claimed_for(self, process: str, partition_id: str, tasks: list[str]) -> Any:
        partition = self._index._partitions.get(partition_id)
        known = set() if partition is None else partition._tasks
        asked = {(process, partition_id, task) for task in tasks}
        self._unknown |= {key for key in asked if key[-1] not in known}
        return await self.all_claimed(partition_id, tasks) if not asked & self._unknown else False


@ray_mutant("STAT-02", evidence="status of the task 'awaited'", may_fail="STAT-01")
class UnknownTaskKeptByAsker(_AsksAsProcess):
    """Remembers for each process the tasks that were not registered when it asked for them."""

    controller_class = _KeepsUnknownTasks


class _Watermarks(Controller):
    async def all_claimed_for(self, process: str, partition_id: str, tasks: list[str]) -> Any:
        answer = await self.all_claimed(partition_id, tasks)
        rows = [row for row in rows_in(self._index, partition_id, None) if row.fields]
        if isinstance(answer, Refusal) or answer or not rows:
            return answer
        newest = {row.writer: row for row in rows}  # rows are in the order of their creation
        own = [row for row in rows if row.writer == process]
        looked_at = own + [row for writer, row in newest.items() if writer != process]
        return all({*tasks} <= row.claimed_by for row in looked_at)


@ray_mutant("STAT-01", evidence="the status before the older row is ready", may_fail="STAT-02")
class StatusByWatermarkOfWriter(_AsksAsProcess):
    """Compares, for each other process, only the newest row that it has put, as offsets of a log.

    A row that waits for its last field is passed by younger ones of its process.
    """

    controller_class = _Watermarks


class _CountsRowsWithFields(Controller):
    async def counts(self, partition_id: str) -> tuple[int, int]:
        """Return the age of the newest row, and how many rows have fields."""
        rows = rows_in(self._index, partition_id, None)
        return max((row.age for row in rows), default=-1), sum(bool(row.fields) for row in rows)


@ray_mutant("STAT-01", evidence="status after such a row", may_fail="STAT-02 REG-03")
class StatusKeptWhileCountsAreEqual(ControllerClient):
    """Keeps a status of True while the newest row and the number of rows with fields are the same.

    Its own puts and clears drop it.
    """

    controller_class = _CountsRowsWithFields
    _true = State(dict[tuple[str, tuple[str, ...]], tuple[int, int]])

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._true.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._true.clear()
        super().clear_samples(*args, **kwargs)

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        key = partition_id, tuple(task_names)
        counts = self._connection.call("counts", partition_id)
        if self._true.get(key) == counts:
            return True
        answer = super().check_consumption_status(partition_id, task_names)
        if answer:
            self._true[key] = counts
        return answer
