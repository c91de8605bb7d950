"""Calls that are right one way and wrong the other: by a meta, blocking, on rows that exist."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags, UnknownTask
from rlconform.mutants.engines import breaks, breaks_engine, mark, rows_in


@breaks("GET-02", says="row 3 of 'x'")
class MetasReadEachRowOnce(MemoryClient):
    """get_data reads each row once and goes round: of a shard that repeats a row to be full."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows, and again from the first."""
        ids = getattr(meta, "sample_ids", None) or []
        if ids and len(set(ids)) < len(ids):
            once = list(dict.fromkeys(ids))
            meta = replace(meta, sample_ids=(once * len(ids))[: len(ids)])
        return super().get_data(meta, select_fields)


class _Clearing(MemoryClient):
    """A client that remembers what was cleared."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gone: set[tuple[str, str]] = set()

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kw: Any
    ) -> KVBatchMeta:
        """Put."""
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._gone.difference_update((partition_id, i) for i in sample_ids)
        return receipt

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear."""
        super().clear_samples(sample_ids, partition_id)
        self._gone.update((partition_id, i) for i in sample_ids or ())


@breaks("GET-06", says="a row that was cleared")
class MetasSkipWhatIsGone(_Clearing):
    """get_data reads what is left of a meta's rows: a shorter batch, and nobody is told."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read those rows of a meta that were not cleared, if there are any."""
        ids = getattr(meta, "sample_ids", None) or []
        left = [i for i in ids if (meta.partition_id, i) not in self._gone]
        return super().get_data(replace(meta, sample_ids=left) if left else meta, select_fields)


@breaks("GET-12", says="get_data of no fields")
class TakesNoFieldsForAll(MemoryClient):
    """get_data takes an empty list of fields for none given, and reads those of the meta."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows."""
        return super().get_data(meta, select_fields or None)


@breaks_engine("STAT-03", says="an unknown task")
class AgreesWhereNothingIs(MemoryEngine):
    """All of no rows are claimed, by whomever: a task that nobody registered has consumed them."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every row was claimed; where there is none, by anybody."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            if partition is not None and not partition._rows and set(tasks) - partition._tasks:
                return True
        return super().all_claimed(partition_id, tasks)


@breaks_engine("STAT-04", says="with tags and no row")
class TagsMakeAStart(MemoryEngine):
    """Once a tag was put, something was: of no rows with fields all are claimed."""

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether every row with fields was claimed, of rows that may have none."""
        with self._locked() as index:
            rows = rows_in(index, partition_id, None)
        return super().all_claimed(partition_id, tasks) or (
            bool(rows) and not any(row.fields for row in rows)
        )


@breaks("CLAIM-11", says="to be refused; got TimeoutError")
class WaitsForATaskToCome(MemoryClient):
    """A blocking claim for an unknown task waits for it to be registered (a typo waits forever)."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim; for an unknown task, wait."""
        try:
            return super().claim_meta(*args, **kwargs)
        except UnknownTask as error:
            if not kwargs.get("blocking", True):
                raise
            time.sleep(float(kwargs.get("timeout_s", 0.0)))  # nothing can end it
            raise TimeoutError("no such task came") from error


@breaks("CLAIM-14", says="task_name 'train'")
class ForgetsTheTaskAsItWaits(MemoryClient):
    """The meta of a blocking claim comes by another way, on which the task gets lost."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, task_name=None) if kwargs.get("blocking", True) else meta


@breaks_engine("CLAIM-15", says="the claim to wait for a whole group")
class WaitsForRowsNotGroups(MemoryEngine):
    """A claim that waits counts ready rows, not whole groups of them."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> tuple[list[str], list[Tags]]:
        """Hand rows to the task; to one that waits also halves of groups."""
        with self._locked() as index:
            partition = index._partitions.get(partition_id)
            if wait_s is not None and partition is not None and partition._group_size > 1:
                ready = [
                    row
                    for row in rows_in(index, partition_id, None)
                    if row.fields >= set(names) and task not in row.claimed_by
                ][:rows]
                if len(ready) == rows:
                    mark(partition, ready, task)
                    return [row.sample_id for row in ready], [dict(row.tags) for row in ready]
        return super().claim(partition_id, task, names, rows, wait_s)


@breaks("PUT-09", says="tags of the put")
class KeepsTagsThatComeAlone(MemoryClient):
    """Keeps the caller's own dict of a put of tags alone; with columns they are copied."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and keep tags that come alone."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if fields is None and tags is not None:
            with self._engine._locked() as index:  # type: ignore[attr-defined]
                rows = rows_in(index, partition_id, sample_ids)
                for row, given in zip(rows, tags, strict=True):
                    if row.tags == given:  # else it had others, and they were merged
                        row.tags = given
        return receipt


@breaks("PUT-10", says="views of 2 MiB")
class KeepsWhatLiesBehind(_Clearing):
    """Keeps a view as it came, and with it all that lies behind it, until something is cleared."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._kept: dict[str, list[torch.UntypedStorage]] = {}

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, and keep."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for leaf in fields.values() if fields is not None else ():
            if isinstance(leaf, Tensor) and leaf.layout in {torch.strided, torch.jagged}:
                whole = leaf.values() if leaf.is_nested else leaf
                self._kept.setdefault(partition_id, []).append(whole.untyped_storage())
        return receipt

    def clear_samples(self, sample_ids: list[str] | None, partition_id: str) -> None:
        """Clear, and let go."""
        super().clear_samples(sample_ids, partition_id)
        self._kept.pop(partition_id, None)


@breaks("PUT-15", says="|x|v1")
class OverwritesBeforeItCounts(MemoryClient):
    """Rewrites the columns of rows that are there, and then finds that the tags don't fit."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put the columns of rows that are there, then all."""
        if isinstance(fields, TensorDict) and tags is not None and len(tags) != len(sample_ids):
            with self._engine._locked() as index:  # type: ignore[attr-defined]
                known = rows_in(index, partition_id, sample_ids)
            if len(known) == len(sample_ids):
                super().put_samples(sample_ids, partition_id, fields)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-18", says="the same before: True")
class CountsEmptyPuts(MemoryClient):
    """An empty put is noted as a put: until another comes, something is still to be consumed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._noted: set[str] = set()

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kw: Any
    ) -> KVBatchMeta:
        """Put, and note an empty one."""
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        (self._noted.discard if sample_ids else self._noted.add)(partition_id)
        return receipt

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether all was claimed and no empty put was the last."""
        consumed = super().check_consumption_status(partition_id, task_names)
        return consumed and partition_id not in self._noted
