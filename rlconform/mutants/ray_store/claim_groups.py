"""Groups of a size that was valid before, or with members that are gone."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from rlconform.backends.index.row import IndexRow
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import mark, rows_in
from rlconform.mutants.ray_store.mutant import controller_mutant, ray_mutant
from rlconform.mutants.types import Claimed, Names, Wait


class _Engine(RayStoreEngine):
    _sizes = State(dict[str, int])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._sizes[partition_id] = group_size

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        if partition_id not in self._sizes:
            sizes = {
                saved.partition_id: saved.group_size for saved in self.snapshot() if saved.tasks
            }
            self._sizes = sizes | self._sizes
        if wait_s is None and rows < self._sizes.get(partition_id, 1):
            return [], []
        return super().claim(partition_id, task, names, rows, wait_s)


@ray_mutant("CLAIM-15", evidence="rows of one group of 2")
class ClaimGroupSizeCached(RayStoreClient):
    """Caches a partition's group size, even if another process registers the partition anew.

    A claim of fewer rows than the cached size returns none.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._engine = _Engine(self._connection)


@controller_mutant("CLAIM-15", chance=False, evidence="whole group", may_fail="CLAIM-05 REG-03")
class GroupSizeKeptWhileClaimsWait(Controller):
    """Keeps the group size of a partition that is registered anew while a claim waits in it."""

    async def register(self, partition_id: str, tasks: Names, group_size: int) -> Any:
        if self._waiting.get(partition_id):
            group_size = self._index.partition(partition_id)._group_size
        return await super().register(partition_id, tasks, group_size)


@controller_mutant(
    "CLAIM-10", chance=False, evidence="of a group that lacks one", may_fail="CLAIM-15"
)
class ClearedMembersCount(Controller):
    """Counts members of a group that a claim has seen, though they were cleared since."""

    _seen = State(dict[str, dict[str, Any]])  # by partition, the group of each id

    async def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait
    ) -> Any:
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        partition = self._index.partition(partition_id)
        if wait_s is not None or partition._group_size == 1 or claimed != ([], []):
            return claimed
        ready: dict[Any, list[IndexRow]] = defaultdict(list)
        present = rows_in(self._index, partition_id, None)
        for row in present:
            if task not in row.claimed_by and row.fields.issuperset(names):
                ready[row.group].append(row)
        seen = self._seen.setdefault(partition_id, {})
        gone = [seen[i] for i in seen.keys() - {row.sample_id for row in present}]
        seen |= {row.sample_id: row.group for row in present}
        for group, members in ready.items():
            if group in gone and len(members) + gone.count(group) >= partition._group_size:
                mark(partition, members, task)
                return [row.sample_id for row in members], [row.tags for row in members]
        return claimed
