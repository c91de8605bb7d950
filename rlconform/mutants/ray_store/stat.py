"""A consumption status that counts only the calls of the asking process."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ray_mutant
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
