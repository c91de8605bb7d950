"""Races between threads of one process: a step that must be atomic is split in two."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.column_helpers import through_one_buffer
from rlconform.mutants.memory.helpers import (
    Registering,
    WriteBack,
    claims_of,
    engine_mutant,
    fields_of,
    memory_mutant,
    records,
    stamps_of,
)
from rlconform.mutants.types import AnyBatch, Ids, MaybeBatch, MaybeTags, Names


@engine_mutant("CLAIM-02", evidence="lost", chance=True)
class PutTableGrowsInTwoSteps(MemoryEngine):
    """Copies its table of ready rows to enlarge it, and loses rows put during the copy (TQ-08)."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._room: dict[str, int] = {}

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            partition = index.partition(partition_id)
            room = self._room.setdefault(partition_id, 64)
            copied = set(partition._rows)
            if len(copied) <= room:
                return
            self._room[partition_id] = 2 * room
        time.sleep(0.005)  # duration of the copy
        with self._locked() as index:
            for sample_id in partition._rows.keys() - copied:
                partition._queues.discard([partition._rows[sample_id]])
                partition._rows[sample_id].claimed_by = frozenset(partition._tasks)


class _WriteBackEngine(MemoryEngine):
    """An engine whose write-backs restore a record that may be outdated."""

    write_back: WriteBack

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        names = frozenset(map(str, () if fields is None else fields.keys()))
        with self._locked() as index:
            known = records(index, partition_id, sample_ids) if names and tags is None else []
        time.sleep(0.001 if known else 0)  # duration of a message
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for record in known:
                self.write_back(index.partition(partition_id), record, names)


@engine_mutant("CLAIM-08", evidence="claims by id", chance=True)
class PutUndoesClaims(_WriteBackEngine):
    """Undoes a claim made during a write-back of the row, so the row is claimed again."""

    write_back = staticmethod(claims_of)


class _Slotted(MemoryEngine):
    """An engine that gives each row the slot freed last, without a defect."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._slots: dict[tuple[str, str], int] = {}
        self._owners: dict[tuple[str, int], str] = {}
        self._free: list[int] = []

    def looked_up(self, partition_id: str, sample_ids: Ids, make: bool) -> list[str]:
        """The current owners of the rows' slots, some time after the slots were looked up."""
        with self._locked():
            for key in [(partition_id, i) for i in sample_ids if make]:
                if key not in self._slots:
                    slot = self._free.pop() if self._free else len(self._slots)
                    self._slots[key], self._owners[partition_id, slot] = slot, key[1]
            slots = [self._slots.get((partition_id, i), -1) for i in sample_ids]
        time.sleep(random.random() * 0.004)
        with self._locked():
            owners = self._owners
            return [
                owners.get((partition_id, s), i) for s, i in zip(slots, sample_ids, strict=True)
            ]

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        with self._locked():
            for sample_id in sample_ids or []:
                slot = self._slots.pop((partition_id, sample_id), None)
                if slot is not None:
                    del self._owners[partition_id, slot]
                    self._free.append(slot)


@engine_mutant("CLEAR-07", evidence="or an error; got bytes of", chance=True)
class GetReadsReusedSlot(_Slotted):
    """Reads a slot after it was given to another row, so it returns that row's values (TQ-11)."""

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        return super().get(partition_id, self.looked_up(partition_id, sample_ids, False), names)

    def put(self, partition_id: str, sample_ids: Ids, *what: Any) -> None:
        with self._locked():
            for key in [(partition_id, i) for i in sample_ids]:
                if key not in self._slots:
                    slot = self._free.pop() if self._free else len(self._slots)
                    self._slots[key], self._owners[partition_id, slot] = slot, key[1]
        super().put(partition_id, sample_ids, *what)


@memory_mutant("LIFE-05", evidence="= row:p-", chance=True, timeouts=RIGHT.timeouts)
class PutBufferSharedByThreads(MemoryClient):
    """Passes every dense column through one buffer without a lock, so threads mix their values.

    In the incident, threads shared one encoder's buffers, and sizes resulted that no dtype divides
    (TQ-20).
    """

    def __init__(self, cfg: Mapping[str, Any] | None = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._buffer = bytearray()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict):
            fields = through_one_buffer(self._buffer, fields)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("LIFE-05", evidence="= row:p-", chance=True, timeouts=RIGHT.timeouts)
class GetSharedAttributeOverwritten(MemoryClient):
    """Stores the ids of a read in an attribute, which another thread's read overwrites.

    In the incident, requests and answers of two threads were mixed on one connection (TQ-09).
    """

    _ids: list[str]

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        self._ids = sample_ids
        time.sleep(0)  # other threads run, as during a wait for a socket
        return super().get_samples(self._ids, partition_id, select_fields)


@memory_mutant("LIFE-08", evidence="no row in a partition in which nothing was put", chance=True,
        may_fail=("STAT-04",))  # fmt: skip
class RegisterPutsPlaceholder(MemoryClient):
    """Declares fields by putting and clearing a row that other threads can claim (NR-17)."""

    def register_partition(self, partition_id: str, fields: Names, *a: Any, **k: Any) -> None:
        super().register_partition(partition_id, fields, *a, **k)
        if fields and k.get("grpo_group_size") is None:
            zeros = {field: torch.zeros(1, 1, dtype=torch.uint8) for field in fields}
            try:
                self.put_samples(["__schema__"], partition_id, TensorDict(zeros, batch_size=[1]))
            except ValueError:  # the fields have rows of another dtype, so they are known
                return
            time.sleep(0.002)  # duration of a round trip
            self.clear_samples(["__schema__"], partition_id)
            super().register_partition(partition_id, fields, *a, **k)


@engine_mutant("PUT-11", evidence="not produced", chance=True)
class PutFieldsOfTwoThreadsLost(_WriteBackEngine):
    """Updates a row's set of fields without a lock, so one of two concurrent puts is lost."""

    write_back = staticmethod(fields_of)


@memory_mutant(
    "REG-06", evidence="changed size during iteration", may_fail=("LIFE-05",), chance=True
)
class ClaimFieldsChangeDuringIteration(Registering):
    """Iterates over the fields in a claim while other threads add fields (NR-16)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._fields: dict[str, dict[str, None]] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        known = self._fields.setdefault(partition_id, {})
        known.update(dict.fromkeys(receipt.fields or ()))
        return receipt

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        for _ in self._fields.get(partition_id, ()):
            time.sleep(0)  # other threads run
        return super().claim_meta(partition_id, *args, **kwargs)


@engine_mutant("TAG-02", evidence="tagged and written to at once", chance=True)
class PutUndoesStamps(_WriteBackEngine):
    """Undoes a put of tags made during a write-back of the row."""

    write_back = staticmethod(stamps_of)


@engine_mutant("TAG-04", evidence="the tags of its put on every claimed row", chance=True)
class PutSendsTagsAfterFields(MemoryEngine):
    """Makes rows claimable before their tags are stored (TQ-04)."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        if fields is None or tags is None:
            super().put(partition_id, sample_ids, fields, tags)
        else:
            super().put(partition_id, sample_ids, fields, None)
            time.sleep(0.002)  # duration of a second message
            super().put(partition_id, sample_ids, None, tags)
