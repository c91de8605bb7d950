"""Clients that join late, leave early or are refused a call, to the harm of other processes."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import torch
from ray.experimental import internal_kv
from tensordict import TensorDict

from rlconform.backends.process_id import process_id
from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.contract import KVBatchMeta, UnknownField
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import interplay_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


class SharesNotes(RayStoreClient):
    """A client without a defect; its processes share a few notes beside the plane."""

    def _note(self, *key: str) -> Any:
        return json.loads(internal_kv._internal_kv_get(self._address(key)) or "null")

    def _write_note(self, value: Any, *key: str) -> None:
        internal_kv._internal_kv_put(self._address(key), json.dumps(value))

    def _address(self, key: tuple[str, ...]) -> str:
        return json.dumps([self._connection._controller._actor_id.hex(), *key])


@interplay_mutant("LIFE-02", evidence="not produced", seed=1)
class CloseDropsWriteBacks(SharesNotes):
    """Drops the columns, when a client closes, that it has written to rows of other processes."""

    _written = State(set[tuple[str, str, str]])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        known = set(self.list_sample_ids(partition_id)) if fields is not None else set()
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name in receipt.fields or []:
            for sample_id in sample_ids:
                self._write_note(None, "dropped", partition_id, sample_id, name)
                if sample_id in known and not self._owner:
                    self._written.add((partition_id, sample_id, name))
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for sample_id in sample_ids:
            for name in select_fields:
                if self._note("dropped", partition_id, sample_id, name):
                    raise UnknownField(f"field {name!r} of {sample_id!r} is not produced")
        return batch

    def close(self) -> None:
        for key in self._written:
            self._write_note(True, "dropped", *key)
        self._written.clear()
        super().close()


@interplay_mutant("LIFE-06", evidence="of torch", seed=5)
class LateClientReadsDefaultDtype(SharesNotes):
    """Reads 16-bit floats as 32-bit ones from partitions registered before the client attached.

    A client hears of the dtypes of a partition when it is registered, and else takes a default.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._missed = set() if self._owner else set(self._note("partitions") or [])

    def register_partition(self, partition_id: str, *a: Any, **k: Any) -> None:
        super().register_partition(partition_id, *a, **k)
        self._write_note([*(self._note("partitions") or []), partition_id], "partitions")

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()) if partition_id in self._missed else ():
            if isinstance(leaf, torch.Tensor) and leaf.dtype in {torch.float16, torch.bfloat16}:
                batch.set(name, leaf.float())
        return batch


@interplay_mutant("CLEAR-03", evidence="as some are cleared", may_fail="CLAIM-10", seed=67)
class ClearAllSparesRowsHeldElsewhere(SharesNotes):
    """Leaves rows out of a clear of all that another process has claimed and may still read."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        for sample_id in meta.sample_ids:
            self._write_note(process_id(), "holder", meta.partition_id, sample_id)
        return meta

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        if sample_ids is None:
            saved = [p for p in self._engine.snapshot() if p.partition_id == partition_id]
            held = [row.sample_id for p in saved for row in p.rows if self._held(p, row.sample_id)]
            if held:
                own = [row.sample_id for p in saved for row in p.rows]
                super().clear_samples([i for i in own if i not in held], partition_id)
                return
        super().clear_samples(sample_ids, partition_id)

    def _held(self, partition: Any, sample_id: str) -> bool:
        holder = self._note("holder", partition.partition_id, sample_id)
        return holder not in {None, process_id()}


@interplay_mutant("CLEAR-01", evidence="as some are cleared", may_fail="GET-06 CLAIM-10", seed=4)
class RefusedReadPinsRows(SharesNotes):
    """Leaves the rows pinned that a refused read had found before it met one that is unknown.

    Another process can't clear a pinned row; a later read of the same process unpins it.
    """

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        try:
            batch = super().get_samples(sample_ids, partition_id, select_fields)
        except LookupError:
            known = set(self.list_sample_ids(partition_id))
            self._pin([i for i in sample_ids if i in known], partition_id, process_id())
            raise
        self._pin(sample_ids, partition_id, None)
        return batch

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        if isinstance(sample_ids, list):
            pins = [self._note("pin", partition_id, str(i)) for i in sample_ids]
            rows = zip(sample_ids, pins, strict=True)
            sample_ids = [i for i, pin in rows if pin in {None, process_id()}]
        super().clear_samples(sample_ids, partition_id)

    def _pin(self, sample_ids: Ids, partition_id: str, who: str | None) -> None:
        for sample_id in sample_ids:
            if who is not None or self._note("pin", partition_id, sample_id) == process_id():
                self._write_note(who, "pin", partition_id, sample_id)


@interplay_mutant("LIFE-02", evidence="rows claimed")
class CloseFreesSegmentByCount(RayStoreClient):
    """Drops its rows at its close if it has cleared as many as it put, whoever had put those."""

    _left = State(Counter[str])  # rows by partition

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        self._left[partition_id] += len(receipt.sample_ids)
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._left[partition_id] -= len(sample_ids or ())

    def close(self) -> None:
        for partition_id, left in [*self._left.items()]:
            if left <= 0 and not self._owner:
                super().clear_samples(None, partition_id)
        self._left.clear()
        super().close()
