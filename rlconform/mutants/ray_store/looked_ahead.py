"""Planes that answer from what they knew before another process changed it."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, StoredPut
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import rows_in
from rlconform.mutants.ray_store.mutant import ControllerClient, controller_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import rows_of, stack_or_nest
from rlconform.wire.leaves import is_jagged


class _ShowsNextTags(Controller):
    async def next_tags(
        self, partition_id: str, task: str, names: list[str], rows: int
    ) -> dict[str, Tags]:
        """Return the tags of the rows that the task may claim next."""
        ready = [
            row
            for row in rows_in(self._index, partition_id, None)
            if task not in row.claimed_by and row.fields.issuperset(names)
        ]
        return {row.sample_id: dict(row.tags) for row in ready[:rows]}


@ray_mutant("TAG-01", evidence="versions before stamp", may_fail="GET-10 TAG-06 CLAIM-02")
class TagsOfNextRowsSentAhead(ControllerClient):
    """Gets the tags of the next rows with the answer to a claim, if the claim before was equal."""

    controller_class = _ShowsNextTags

    _newest: tuple[Any, ...] = ()
    _ahead = State(dict[str, Tags])

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: Names,
        batch_size: int,
        *args: Any,
        **kwargs: Any,
    ) -> KVBatchMeta:
        wanted = (partition_id, task_name, required_fields, batch_size)
        meta = super().claim_meta(*wanted, *args, **kwargs)
        if wanted == self._newest:
            for sample_id, tags in zip(meta.sample_ids, meta.tags or (), strict=False):
                tags.update(self._ahead.get(sample_id, {}))
        self._newest = (*wanted[:2], list(required_fields), batch_size)
        self._ahead = self._connection.call(
            "next_tags", partition_id, task_name, list(required_fields), batch_size
        )
        return meta

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        self._newest = ()
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        self._newest = ()
        super().clear_samples(sample_ids, partition_id)


@controller_mutant("STAT-01", evidence="such a row got a field", chance=False, may_fail="STAT-02")
class StatusOfSeveralTasksLatched(Controller):
    """Keeps that several tasks are done until a row is new, or its announcer puts a field."""

    _done = State(set[tuple[str, ...]])

    async def all_claimed(self, partition_id: str, tasks: list[str]) -> Any:
        key = (partition_id, *sorted(tasks))
        if key in self._done:
            return True
        answer = await super().all_claimed(partition_id, tasks)
        if answer is True and len(tasks) > 1:
            self._done.add(key)
        return answer

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        known = rows_in(self._index, put.partition_id, put.sample_ids)
        announced = all(not row.fields and row.writer != put.writer for row in known)
        if len(known) < len(put.sample_ids) or not announced:
            self._open(put.partition_id)
        return await super().commit(put, columns, reference)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        self._open(partition_id)
        return await super().clear(partition_id, sample_ids, writer)

    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> Any:
        self._open(partition_id)
        return await super().register(partition_id, tasks, group_size)

    def _open(self, partition_id: str) -> None:
        self._done = {key for key in self._done if key[0] != partition_id}


class _KnowsAppended(Controller):
    async def appended(self, partition_id: str, sample_ids: Ids) -> list[list[str]]:
        """Return the fields of each row that not all rows of the partition have."""
        rows = rows_in(self._index, partition_id, None)
        common = frozenset.intersection(*(row.fields for row in rows)) if rows else frozenset()
        of = {row.sample_id: sorted(row.fields - common) for row in rows}
        return [of.get(i, []) for i in sample_ids]


@ray_mutant("GET-05", evidence="of which", may_fail="GET-02 PUT-15 PUT-16 CLAIM-07")
class ColumnsAppendedToOtherRows(ControllerClient):
    """Reads, for a field that rows lack, the only other field that was appended to them."""

    controller_class = _KnowsAppended

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        read = super().get_samples
        try:
            return read(sample_ids, partition_id, select_fields)
        except LookupError:
            names = list(select_fields)
            appended = self._connection.call("appended", partition_id, list(sample_ids))
            if len(names) != 1 or any(len(each) != 1 for each in appended):
                raise
        rows = [
            read([sample_id], partition_id, [name]).get(name)[0]
            for sample_id, (name,) in zip(sample_ids, appended, strict=True)
        ]
        return TensorDict({names[0]: torch.stack(rows)}, [len(rows)])


#: Elements of a row that a client continues.
PREFIX = 64


@ray_mutant("PUT-13", evidence="row", may_fail="PUT-01 PUT-05 GET-10")
class RowsContinuedWithNewTokens(RayStoreClient):
    """Sends what is new of a row whose beginning the client has put before, and appends it."""

    _sent = State(dict[tuple[str, str, str], torch.Tensor])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict) and isinstance(sample_ids, list):
            given = {
                name: list(rows_of(leaf))
                for name, leaf in fields.items()
                if isinstance(leaf, torch.Tensor) and is_jagged(leaf)
            }
            fields = fields.copy()
            for name, rows in given.items():
                stored = [
                    self._continued(partition_id, sample_id, name, row)
                    for sample_id, row in zip(sample_ids, rows, strict=False)
                ]
                if any(new is not row for new, row in zip(stored, rows, strict=False)):
                    fields.set(name, stack_or_nest(stored))
            receipt = super().put_samples(sample_ids, partition_id, fields, tags)
            for name, rows in given.items():
                for sample_id, row in zip(sample_ids, rows, strict=True):
                    self._sent[partition_id, sample_id, name] = row.clone()
            return receipt
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def _continued(
        self, partition_id: str, sample_id: str, name: str, row: torch.Tensor
    ) -> torch.Tensor:
        before = self._sent.get((partition_id, sample_id, name), row[:0])
        length = len(before)
        if not PREFIX <= length < len(row) or not torch.equal(before, row[:length]):
            return row
        try:
            held = self.get_samples([sample_id], partition_id, [name]).get(name)[0]
        except LookupError:
            return row
        if len(held) < length or held.dtype != row.dtype:
            return row
        return torch.cat([held[:length], row[length:]])
