"""Claims by a group size that the process has cached."""

from __future__ import annotations

from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.engine import RayStoreEngine
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ray_mutant
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
