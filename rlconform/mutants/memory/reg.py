"""Registrations that accept or reject the wrong arguments, or keep earlier state."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.columns.encode import pack
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.helpers import Registering, engine_mutant, memory_mutant
from rlconform.mutants.types import AnyBatch, Ids, MaybeBatch, MaybeTags, Names


@memory_mutant("REG-01", evidence="'sample_mask' of torch.int32")
class PutDtypeChosenByFieldName(MemoryClient):
    """Chooses a column's dtype by its field name: an integer ``sample_mask`` becomes float."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        leaf = fields.get("sample_mask", None) if isinstance(fields, TensorDict) else None
        if isinstance(fields, TensorDict) and leaf is not None and leaf.dtype is torch.int32:
            fields = fields.copy().set("sample_mask", leaf.float())
        return super().put_samples(sample_ids, partition_id, fields, tags)


@engine_mutant("REG-01", evidence="is taken")
class PutCommonFieldNamesRefused(MemoryEngine):
    """Rejects fields named values, keys or items, because columns are attributes of a record."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        taken = {"values", "keys", "items"}.intersection(pack(fields, len(sample_ids)))
        if taken:
            raise ValueError(f"{taken} is taken")
        super().put(partition_id, sample_ids, fields, tags)


@memory_mutant("REG-02", evidence="'pixel_values' is not produced")
class PutUndeclaredImagesDropped(Registering):
    """Silently drops flat image patches of undeclared fields (NR-13, NR-53)."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        known = self._declared.get(partition_id, [])
        if isinstance(fields, TensorDict):
            patches = [
                str(n) for n, leaf in fields.items() if "pixel" in str(n) and leaf.dim() == 2
            ]
            fields = fields.exclude(*(name for name in patches if name not in known))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant(
    "REG-02", evidence="'pixel_values' was not declared", may_fail=("REG-06", "CLAIM-01", "STAT-01")
)
class PutUndeclaredFieldsRefused(Registering):
    """Rejects fields that the last registration did not declare."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        known = self._declared.get(partition_id, [])
        for name in fields.keys() if isinstance(fields, TensorDict) else ():
            if name not in known:
                raise ValueError(f"{name!r} was not declared")
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("REG-03", evidence="rows claimed in step 1")
class RegisterRestoresCursors(Registering):
    """Restores a task's cursor from the previous registration, so rows put again are skipped."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._claimed: dict[str, dict[str, set[str]]] = {}
        self._restored: dict[str, dict[str, set[str]]] = {}

    def register_partition(self, partition_id: str, *args: Any, **kwargs: Any) -> None:
        super().register_partition(partition_id, *args, **kwargs)
        self._restored[partition_id] = self._claimed.pop(partition_id, {})

    def claim_meta(
        self, partition_id: str, task_name: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, task_name, *args, **kwargs)
        had = self._restored.get(partition_id, {}).get(task_name, set())
        claimed = self._claimed.setdefault(partition_id, {}).setdefault(task_name, set())
        claimed.update(meta.sample_ids)
        left = [n for n, sample_id in enumerate(meta.sample_ids) if sample_id not in had]
        return meta.subset(left) if len(left) < len(meta.sample_ids) else meta


@memory_mutant(
    *("REG-03", "CLEAR-03", "LIFE-08", "STAT-01"),
    evidence="schema row exists",
    may_fail=("CLEAR-04", "REG-04"),
)
class RegisterTwiceRefused(Registering):
    """Rejects a second registration, because it never clears its schema row (NR-18)."""

    def register_partition(self, partition_id: str, *args: Any, **kwargs: Any) -> None:
        super().register_partition(partition_id, *args, **kwargs)
        if self._lives[partition_id] > 1:
            raise RuntimeError("the schema row exists")


@memory_mutant("REG-05", evidence="{'num_samples': -1} to be rejected")
class RegisterAnySizeAccepted(MemoryClient):
    """Accepts a negative ``num_samples``, because it never uses the value."""

    def register_partition(
        self, partition_id: str, fields: Names, num_samples: int, *args: Any, **kwargs: Any
    ) -> None:
        size = max(num_samples, 0) if isinstance(num_samples, int) else num_samples
        super().register_partition(partition_id, fields, size, *args, **kwargs)


@memory_mutant("REG-05", evidence="{'consumer_tasks': ['train', 'train']} to be rejected")
class RegisterDuplicateTasksMerged(MemoryClient):
    """Accepts duplicate task names and merges them."""

    def register_partition(
        self,
        partition_id: str,
        fields: Names,
        num_samples: int,
        consumer_tasks: Names,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        tasks = list(dict.fromkeys(consumer_tasks)) if isinstance(consumer_tasks, list) else None
        super().register_partition(
            partition_id, fields, num_samples, tasks or consumer_tasks, *args, **kwargs
        )


@memory_mutant("REG-05", evidence="{'partition_id': ''} to be rejected")
class RegisterEmptyNameAccepted(MemoryClient):
    """Accepts an empty partition name."""

    def register_partition(self, partition_id: str, *args: Any, **kwargs: Any) -> None:
        super().register_partition(
            "default" if partition_id == "" else partition_id, *args, **kwargs
        )


@memory_mutant("REG-05", evidence="{'fields': ['x', 'x']} to be rejected")
class RegisterDuplicateFieldsMerged(MemoryClient):
    """Accepts duplicate field names and merges them."""

    def register_partition(
        self, partition_id: str, fields: Names, *args: Any, **kwargs: Any
    ) -> None:
        once = list(dict.fromkeys(fields)) if isinstance(fields, list) else fields
        super().register_partition(partition_id, once, *args, **kwargs)


@memory_mutant("REG-06", "PUT-12", evidence="no room for another column")
class PutFieldCountLimited(MemoryClient):
    """Rejects more than 32 fields in a partition."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._columns: dict[str, set[str]] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        columns = self._columns.setdefault(partition_id, set())
        if isinstance(fields, TensorDict):
            columns.update(map(str, fields.keys()))
        if len(columns) > 32:
            raise RuntimeError("no room for another column")
        return super().put_samples(sample_ids, partition_id, fields, tags)
