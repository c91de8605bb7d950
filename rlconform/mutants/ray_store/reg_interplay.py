"""What a process remembers of a registration that another process has replaced since."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, UnknownTask
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import interplay_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column


@interplay_mutant("REG-03", evidence="no task", seed=6)
class TasksKnownFromFirstClaim(RayStoreClient):
    """Fetches a partition's tasks at its first claim, and refuses all other tasks from then on."""

    _tasks = State(dict[str, set[str]])

    def claim_meta(self, partition_id: str, task_name: str, *a: Any, **k: Any) -> KVBatchMeta:
        known = self._tasks.get(partition_id)
        if known is not None and task_name not in known:
            raise UnknownTask(f"partition {partition_id!r} has no task {task_name!r}")
        meta = super().claim_meta(partition_id, task_name, *a, **k)
        if known is None:
            saved = [p for p in self._engine.snapshot() if p.partition_id == partition_id]
            self._tasks[partition_id] = {task for p in saved for task in p.tasks}
        return meta

    def register_partition(self, partition_id: str, *a: Any, **k: Any) -> None:
        super().register_partition(partition_id, *a, **k)
        self._tasks.pop(partition_id, None)


@interplay_mutant("GET-10", evidence="of torch", may_fail="PUT-13", seed=101)
class WriterCastsToItsFirstDtype(RayStoreClient):
    """Casts a column to the dtype that the process put before, if another process changed it since.

    A process notes a field's dtype when it puts and when it reads, and trusts its own puts more.
    """

    _dtypes = State(dict[tuple[str, str], torch.dtype])
    _seen = State(dict[tuple[str, str], torch.dtype])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict):
            fields = fields.copy()
            for name in list(map(str, fields.keys())):
                self._cast(fields, partition_id, name)
        return super().put_samples(sample_ids, partition_id, fields, tags)

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in list(map(str, batch.keys())):
            if not is_object_column(batch.get(name)):
                self._seen[partition_id, name] = batch.get(name).dtype
        return batch

    def _cast(self, fields: TensorDict, partition_id: str, name: str) -> None:
        """Cast a column if the process has read another dtype than it has put: a stale schema."""
        key, leaf = (partition_id, name), fields.get(name)
        if not isinstance(leaf, torch.Tensor) or leaf.is_nested:
            return
        first = self._dtypes.setdefault(key, leaf.dtype)
        if first != leaf.dtype and self._seen.get(key, first) == leaf.dtype:
            fields.set(name, leaf.to(first))
        else:
            self._dtypes[key] = leaf.dtype
