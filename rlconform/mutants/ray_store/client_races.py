"""Clients that cause races with other threads or processes by their client-side code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.column_helpers import through_one_buffer
from rlconform.mutants.ray_store.mutant import ray_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


@ray_mutant("LIFE-05", evidence="wrong-row", chance=True)
class AttachedPutBufferShared(RayStoreClient):
    """An attached client sends the puts of all its threads through one buffer without a lock.

    The threads of an async actor shared one connection; in the driver each call had a separate
    one (TQ-10).
    """

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._buffer = bytearray()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict) and not self._owner:
            fields = through_one_buffer(self._buffer, fields)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@ray_mutant("LIFE-08", evidence="phantom", chance=True)
class ProcessesRegisterPutsPlaceholder(RayStoreClient):
    """Registers the fields of a partition by putting a placeholder row and clearing it.

    Consumers claimed 272 of these placeholder rows (NR-17).
    """

    def register_partition(
        self,
        partition_id: str,
        fields: Names,
        num_samples: int,
        consumer_tasks: Names,
        grpo_group_size: int | None = None,
        enums: dict[str, list[str]] | None = None,
    ) -> None:
        register = partial(
            super().register_partition,
            partition_id,
            fields,
            num_samples,
            consumer_tasks,
            grpo_group_size,
            enums,
        )
        register()
        if fields and grpo_group_size is None:
            zeros = {field: torch.zeros(1, 1, dtype=torch.uint8) for field in fields}
            try:
                self.put_samples(["__schema__"], partition_id, TensorDict(zeros, batch_size=[1]))
            except ValueError:  # rows of another dtype exist: the fields are known
                return
            self.clear_samples(["__schema__"], partition_id)
            register()


#: How long a client caches a status, s.
REMEMBERED_S = 0.03


@ray_mutant("STAT-02", evidence="non-monotonic", may_fail=("STAT-01",), chance=True)
class StatusCachedByProcess(RayStoreClient):
    """Caches the last status for 30 ms, or until the same process puts, claims or clears."""

    def __init__(self, cfg: Mapping[str, Any], bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._known: dict[tuple[str, ...], tuple[float, bool]] = {}

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        key = (str(partition_id), *map(str, task_names or ()))
        asked, answer = self._known.get(key, (0.0, False))
        if time.monotonic() - asked > REMEMBERED_S:
            answer = super().check_consumption_status(partition_id, task_names)
            self._known[key] = (time.monotonic(), answer)
        return answer

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._known.clear()
        return super().put_samples(*args, **kwargs)

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._known.clear()
        return super().claim_meta(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._known.clear()
        super().clear_samples(*args, **kwargs)
