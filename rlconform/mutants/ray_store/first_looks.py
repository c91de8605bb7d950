"""What a plane keeps of an earlier look, though another process has changed it since."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tensordict import TensorDict

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal, StoredPut, answers
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import give_back, rows_in
from rlconform.mutants.ray_store.mutant import (
    ControllerClient,
    controller_mutant,
    ray_engine_mutant,
    ray_mutant,
)
from rlconform.mutants.types import Claimed, Ids, Names, Wait


@controller_mutant("TAG-01", chance=False, evidence="tags of", may_fail="CLAIM-05 TAG-04 TAG-07")
class ClaimThatWaitedHasFirstTags(Controller):
    """Returns from a claim that waited the tags that rows had when it began to wait."""

    _first = State(dict[tuple[str, str, tuple[str, ...], int], dict[str, Any]])

    async def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait
    ) -> Any:
        key = (partition_id, task, tuple(names), rows)
        if wait_s is not None and key not in self._first:
            known = rows_in(self._index, partition_id, None)
            self._first[key] = {row.sample_id: row.tags for row in known}
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if not isinstance(claimed, tuple):
            return claimed
        first = self._first.pop(key, {})
        return claimed[0], [first.get(i, tags) for i, tags in zip(*claimed, strict=True)]


#: Rows of a partition whose status a client keeps.
MANY = 256


@ray_mutant("STAT-01", evidence="status with", may_fail="STAT-02 CLAIM-08 REG-03")
class StatusOfManyRowsKeptByCount(RayStoreClient):
    """Keeps a status of True until a partition of 256 rows or more has another number of rows."""

    _true = State(dict[tuple[str, tuple[str, ...]], int])

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        count = len(self._connection.call("sample_ids", partition_id))
        key = (partition_id, tuple(task_names))
        if count >= MANY and self._true.get(key) == count:
            return True
        answer = super().check_consumption_status(partition_id, task_names)
        self._true[key] = count if answer else 0
        return answer


class _CountsChanges(Controller):
    _changes = State(Counter[str])  # by partition

    async def changes(self, partition_id: str) -> int:
        """Return how often rows of the partition were overwritten or cleared."""
        return self._changes[partition_id]

    async def commit(self, put: StoredPut, columns: ColumnBlock, reference: list[Any]) -> Any:
        first = rows_in(self._index, put.partition_id, put.sample_ids[:1])
        self._changes[put.partition_id] += bool(first)
        return await super().commit(put, columns, reference)

    async def clear(self, partition_id: str, *rest: Any) -> Any:
        self._changes[partition_id] += 1
        return await super().clear(partition_id, *rest)


@ray_mutant("GET-10", evidence="row", may_fail="PUT-13 PUT-21 GET-11 R3-01 LIFE-06")
class OverwritesKnownByFirstRow(ControllerClient):
    """Keeps reads until a put overwrites rows, as the first row of the put shows."""

    controller_class = _CountsChanges
    _kept = State(dict[tuple[str, tuple[str, ...], tuple[str, ...]], tuple[int, TensorDict]])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        changes = self._connection.call("changes", partition_id)
        key = (partition_id, tuple(sample_ids), tuple(select_fields))
        kept = self._kept.get(key)
        if kept is None or kept[0] != changes:
            batch = super().get_samples(sample_ids, partition_id, select_fields)
            kept = self._kept[key] = changes, batch
        return kept[1].clone()


#: Sets of fields that an answer of the catalog holds.
CATALOG_PAGE = 256


class _Catalog(Controller):
    @answers
    async def claim_of_known(
        self, partition_id: str, task: str, names: Names, rows: int, known: int
    ) -> tuple[Claimed, int]:
        """Claim rows of the first ``known`` sets of fields; return also how many sets there are."""
        sets = [*dict.fromkeys(row.fields for row in rows_in(self._index, partition_id, None))]
        claimed = await self.claim(partition_id, task, names, rows, None)
        if isinstance(claimed, Refusal):
            raise claimed.error
        of_page = {*sets[:known]}
        tags = dict(zip(*claimed, strict=True))
        left = [
            row for row in rows_in(self._index, partition_id, tags) if row.fields not in of_page
        ]
        give_back(self._index.partition(partition_id), left, task)
        for row in left:
            del tags[row.sample_id]
        return ([*tags], [*tags.values()]), len(sets)


class _OfCatalog(ControllerClient):
    controller_class = _Catalog


@ray_engine_mutant(
    "LIFE-06", evidence="rows of the first claim of a late client", client=_OfCatalog
)
class CatalogFollowedByPages(RayStoreEngine):
    """Claims only rows whose set of fields is known; each claim learns 256 more sets of them."""

    _known = State(dict[str, int])  # sets of fields by partition

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        if wait_s is not None:
            return super().claim(partition_id, task, names, rows, wait_s)
        known = self._known.get(partition_id, 0) + CATALOG_PAGE
        claim = partition_id, task, names, rows, known
        claimed, sets = self._connection.call("claim_of_known", *claim)
        self._known[partition_id] = min(known, sets)
        return claimed
