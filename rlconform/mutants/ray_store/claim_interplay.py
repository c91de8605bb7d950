"""Claims that depend on which process put, claimed or cleared the rows."""

from __future__ import annotations

import time
from typing import Any

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.ray_store.claim import NoticesOwnPuts
from rlconform.mutants.ray_store.mutant import interplay_mutant, ray_call_mutant
from rlconform.mutants.types import Ids


@ray_call_mutant(
    RayStoreClient.claim_meta,
    "CLAIM-05",
    evidence="the blocked claim to come back within",
    plane=NoticesOwnPuts,
    interplay=True,
    seed=1,
)
def ClaimWakesByNewRowsOnly(claim: MethodCall) -> KVBatchMeta:
    """Wakes a blocked claim on puts of the same process, and on new rows of another process.

    The last column of rows, which another process writes back, wakes nobody.
    """
    deadline, rows = time.monotonic() + (claim.timeout_s or 0), -1
    news = claim.plane.news
    while claim.blocking:
        now = len(claim.plane.list_sample_ids(claim.partition_id))
        if news.is_set() or now != rows:
            rows = now
            news.clear()
            try:
                return claim(timeout_s=0.0)
            except TimeoutError:
                pass
        if time.monotonic() > deadline:
            break
        news.wait(0.01)
    return claim(timeout_s=0.0)


@interplay_mutant("CLEAR-04", evidence="claim", may_fail="CLAIM-02 CLAIM-15 REG-03", seed=4)
class RowsServedOnce(RayStoreClient):
    """Leaves rows out of a claim that the process has already got for the task.

    It forgets rows that it clears itself, not those that others clear and put again.
    """

    _served = State(dict[tuple[str, str | None, str], int])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        keys = [(meta.partition_id, meta.task_name, i) for i in meta.sample_ids]
        fresh = [n for n, key in enumerate(keys) if key not in self._served]
        self._served |= dict.fromkeys(keys, 1)
        return meta.subset(fresh)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for key in list(self._served):
            if key[0] == partition_id and (sample_ids is None or key[2] in sample_ids):
                del self._served[key]


@interplay_mutant("STAT-02", evidence="status", may_fail="STAT-01 STAT-03 CLEAR-04 REG-03", seed=3)
class StatusSkipsRowsClaimedHere(RayStoreClient):
    """Answers True without asking if the process has claimed every row that now exists.

    Rows that another process has cleared and put again since, it still takes for claimed.
    """

    _claimed = State(dict[tuple[str, str | None], set[str]])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        self._claimed.setdefault((meta.partition_id, meta.task_name), set()).update(meta.sample_ids)
        return meta

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        if isinstance(task_names, list) and task_names:
            rows = set(self.list_sample_ids(partition_id))
            own = [self._claimed.get((partition_id, task), set()) for task in task_names]
            if rows and all(rows <= claimed for claimed in own):
                return True
        return super().check_consumption_status(partition_id, task_names)

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        for (partition, _), claimed in self._claimed.items():
            if partition == partition_id:
                claimed.difference_update(list(claimed) if sample_ids is None else sample_ids)


@interplay_mutant("CLAIM-02", evidence="claim", may_fail="CLAIM-15", seed=10)
class IncompleteGroupRemembered(RayStoreClient):
    """Leaves rows out of a claim whose group was incomplete at the process's last empty claim.

    Only a put of the same process makes it look at the groups again.
    """

    _incomplete = State(set[tuple[str, str]])

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        if not meta.sample_ids:
            saved = [p for p in self._engine.snapshot() if p.partition_id == meta.partition_id]
            self._incomplete |= {
                (p.partition_id, _uid(row.sample_id))
                for p in saved
                for row in p.rows
                if p.group_size > 1 and meta.task_name not in row.claimed_by
            }
        keys = [(meta.partition_id, _uid(i)) for i in meta.sample_ids]
        return meta.subset([n for n, key in enumerate(keys) if key not in self._incomplete])

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._incomplete.clear()
        return super().put_samples(*args, **kwargs)


def _uid(sample_id: str) -> str:
    return sample_id.rpartition("_g")[0]
