"""Reads that a process keeps until a journal of the changes of other processes names their rows."""

from __future__ import annotations

from collections import deque
from typing import Any

from tensordict import TensorDict

from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.mutants.types import Ids, Names

#: Changes that the journal holds: those of other processes since a process has read it.
NEWEST = 2048
#: Rows of a read that is kept.
SMALL = 4


class _KeepsJournal(Controller):
    _made = 0
    _journal = State(deque[tuple[str, list[str]]])

    def _note(self, partition_id: str, sample_ids: Ids) -> None:
        self._made += 1
        self._journal.append((partition_id, list(sample_ids)))
        if len(self._journal) > NEWEST:
            self._journal.popleft()

    async def commit(self, put: StoredPut, *columns: Any) -> Any:
        due = await super().commit(put, *columns)
        if not isinstance(due, Refusal):
            self._note(put.partition_id, put.sample_ids)
        return due

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        ids = self._index.sample_ids(partition_id) if sample_ids is None else sample_ids
        self._note(partition_id, ids)
        return await super().clear(partition_id, sample_ids, writer)

    async def changes_since(self, made: int) -> tuple[int, list[tuple[str, list[str]]]]:
        """Return how many changes were made, and the newest of those after ``made``."""
        missed = min(self._made - made, len(self._journal))
        return self._made, list(self._journal)[len(self._journal) - missed :]


@ray_mutant("LIFE-06", evidence="row", may_fail="GET-06 GET-10 PUT-13")
class JournalForgetsOldestChanges(ControllerClient):
    """Keeps what it has read until the journal of changes names one of the rows.

    A process that has missed more changes than the journal holds does not notice.
    """

    controller_class = _KeepsJournal
    _seen = 0
    _kept = State(dict[tuple[str, tuple[str, ...], tuple[str, ...]], TensorDict])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        self._seen, changes = self._connection.call("changes_since", self._seen)
        for partition, ids in changes:
            for key in [each for each in self._kept if each[0] == partition]:
                if not {*ids}.isdisjoint(key[1]):
                    del self._kept[key]
        key = (partition_id, tuple(sample_ids), tuple(select_fields))
        if len(sample_ids) > SMALL or not all(isinstance(each, str) for each in key[1] + key[2]):
            return super().get_samples(sample_ids, partition_id, select_fields)
        if key not in self._kept:
            self._kept[key] = super().get_samples(sample_ids, partition_id, select_fields)
        return self._kept[key].clone()

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._kept.clear()
        return super().put_samples(*args, **kwargs)
