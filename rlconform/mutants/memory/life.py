"""Clients that close wrongly, keep state in the process, or fail after a malformed call."""

from __future__ import annotations

import asyncio
from typing import Any

from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import ClientClosed, KVBatchMeta, PlaneUnavailable, Tags
from rlconform.mutants.memory.helpers import engine_mutant, held, memory_mutant
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags, Names


@engine_mutant("LIFE-01", evidence="ClientClosed")
class CloseTwiceRaises(MemoryEngine):
    """Raises an error for a close of a closed client, as for any other call."""

    def close(self) -> None:
        if self._closed:
            raise ClientClosed("this client was closed")
        super().close()


@memory_mutant("LIFE-03", evidence="clear_samples after close to be rejected")
class ClearAfterCloseIgnored(MemoryClient):
    """Ignores a clear after close, so a cleanup that did nothing looks successful."""

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        try:
            super().clear_samples(sample_ids, partition_id)
        except (ClientClosed, PlaneUnavailable):
            return


@memory_mutant("LIFE-03", evidence="check_consumption_status after close to be rejected")
class StatusAfterCloseIsFalse(MemoryClient):
    """Returns False for a status after close, so a loop that waits for the barrier never ends."""

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        try:
            return super().check_consumption_status(partition_id, task_names)
        except (ClientClosed, PlaneUnavailable):
            return False


@memory_mutant("LIFE-04", evidence="still mounted", may_fail=("LIFE-03",))
class CloseLeavesStoreMounted(MemoryClient):
    """Leaves its store mounted on close, so the next client's first put fails (NR-27)."""

    _mounted = False

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        if type(self)._mounted:
            type(self)._mounted = False
            raise PlaneUnavailable("the store is still mounted")
        return super().put_samples(*args, **kwargs)

    def close(self) -> None:
        super().close()
        type(self)._mounted = True


#: Tags of every plane of this process, by partition and row.
_STAMPED: dict[tuple[str, str], Tags] = {}


@engine_mutant("LIFE-04", evidence="no tags of the old plane")
class CloseKeepsTagsInModule(MemoryEngine):
    """Stores tags in a dict of the module, which a close does not empty."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        if tags is None:
            known = [_STAMPED.get((partition_id, i), {}) for i in sample_ids]
            super().put(partition_id, sample_ids, fields, known)
        else:
            super().put(partition_id, sample_ids, fields, tags)
            for sample_id, row in zip(sample_ids, tags, strict=True):
                _STAMPED.setdefault((partition_id, sample_id), {}).update(row)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        for key in list(_STAMPED):
            if key[0] == partition_id and (sample_ids is None or key[1] in sample_ids):
                del _STAMPED[key]


@memory_mutant("LIFE-05", evidence="RuntimeError")
class CallsRunOwnEventLoop(MemoryClient):
    """Calls ``asyncio.run`` in each read, which fails for a caller in an event loop (TQ-10)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        fetched = super().get_samples

        async def fetch() -> TensorDict:
            return fetched(sample_ids, partition_id, select_fields)

        return asyncio.run(fetch())


@memory_mutant("LIFE-07", evidence="claim_meta with {'required_fields': []} to be rejected")
class ClaimEmptyFieldsAccepted(MemoryClient):
    """Treats every row as ready for a claim without required fields, even one with only tags."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("required_fields") == []:
            rows = list(held(self, kwargs["partition_id"])._rows)
            return KVBatchMeta(kwargs["partition_id"], kwargs["task_name"], rows, fields=[])
        return super().claim_meta(*args, **kwargs)


@memory_mutant(
    "LIFE-07", evidence="check_consumption_status with {'task_names': None} to be rejected"
)
class StatusEmptyTasksIsTrue(MemoryClient):
    """Reports a partition as consumed if the caller names no tasks."""

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        return not task_names or super().check_consumption_status(partition_id, task_names)


@memory_mutant("LIFE-07", evidence="nobody serves its claims")
class ClaimBadRequestKillsThread(MemoryClient):
    """Ends the thread that serves a partition's claims on a claim of ``None`` rows (TQ-01)."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> Any:
        ended = self.__dict__.setdefault("_ended", set())
        if partition_id in ended:
            raise PlaneUnavailable("nobody serves its claims")
        if kwargs.get("batch_size", 1) is None:
            ended.add(partition_id)
        return super().claim_meta(partition_id, *args, **kwargs)


@engine_mutant(
    "LIFE-08",
    evidence="the one row to be all there is",
    may_fail=("REG-04", "PUT-16", "STAT-01", "STAT-05", "CLAIM-02", "CLAIM-07", "LIFE-07"),
)
class StatusCountsPlaceholder(MemoryEngine):
    """Counts a slot that a registration reserves as an unclaimed row (NR-05).

    A clear of rows counts the partition's rows again and corrects this.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._aside: set[str] = set()

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._aside.add(partition_id)

    def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        return partition_id not in self._aside and super().all_claimed(partition_id, tasks)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        self._aside.discard(partition_id)
