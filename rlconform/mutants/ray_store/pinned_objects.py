"""What is freed although a row still has it: equal objects stored once, and copies of rows."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock, extents_of
from rlconform.backends.index import CompactedBlock
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredBlock
from rlconform.contract import KVBatchMeta, PlaneUnavailable
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, controller_mutant, ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_rows

#: Characters of an object, as JSON, from which on it is stored once.
LARGE = 1000

#: In place of the columns of a copy.
_NOT_KEPT: ColumnBlock = {}

#: Partition and id of a row that has an object.
User = tuple[str, str]


class _CountsUsers(Controller):
    _counted = State(lambda: defaultdict[str, set[User]](set))  # by digest
    _pinned = State(lambda: defaultdict[str, set[User]](set))

    async def use(self, partition_id: str, digests: dict[str, str], known: Names) -> None:
        """Count the rows that were put with these objects, but for ``known`` ones."""
        for sample_id, digest in digests.items():
            users = self._pinned if digest in known else self._counted
            users[digest].add((partition_id, sample_id))

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        due = await super().clear(partition_id, sample_ids, writer)
        if isinstance(due, Refusal):
            return due
        left = set(self._index.sample_ids(partition_id))
        for digest, users in self._counted.items():
            gone = {user for user in users if user[0] == partition_id and user[1] not in left}
            users.difference_update(gone)
            if gone and not users:  # the object is freed, and what refers to it is lost
                for other, sample_id in self._pinned.pop(digest, ()):
                    await super().clear(other, [sample_id], writer)
        return due


def _digests(batch: MaybeBatch | TensorDict, ids: Ids) -> dict[str, str]:
    """Return the digest of the large object of each row that has one."""
    digests = {}
    for leaf in [] if batch is None else batch.values():
        if is_object_column(leaf):
            for sample_id, value in zip(ids, object_rows(leaf, len(ids)), strict=True):
                text = json.dumps(value, default=repr)
                if len(text) >= LARGE:
                    digests[sample_id] = hashlib.sha256(text.encode()).hexdigest()
    return digests


@ray_mutant("PUT-21", evidence="get_samples raised", may_fail="CLEAR-01 PUT-27")
class ReadObjectsNotCounted(ControllerClient):
    """Stores a large object once; a row with an object that its process has read does not count."""

    controller_class = _CountsUsers
    _read = State(set[str])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        self._read |= {*_digests(batch, sample_ids).values()}
        return batch

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if digests := _digests(fields, sample_ids):
            self._connection.call("use", partition_id, digests, list(self._read))
        return receipt


@controller_mutant("LIFE-02", chance=False, evidence="PlaneUnavailable", may_fail="CLAIM-09")
class CompactedCopiesEndWithTheirProcess(Controller):
    """Keeps large blocks of rows that a process has copied to make room only as long as it lives.

    Blocks that were put are stored again if their object is lost.
    """

    async def move(
        self, block: int, parts: list[tuple[list[int], list[Any]]], *blocks: ColumnBlock
    ) -> list[int]:
        copies = [
            CompactedBlock(
                rows,
                extents_of(columns),
                StoredBlock(_NOT_KEPT if reference else columns, *reference or [None]),
            )
            for (rows, reference), columns in zip(parts, blocks, strict=True)
        ]
        return self._index.move(block, copies)

    async def rescue(self, block: int, lost: list[Any]) -> Any:
        kept = self._index.payload(block)
        if kept is not None and kept.columns is _NOT_KEPT:
            return Refusal(PlaneUnavailable("the rows ended with the process that copied them"))
        return await super().rescue(block, lost)
