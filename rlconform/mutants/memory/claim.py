"""Claims that return rows that are not ready, or a meta with wrong contents."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import replace
from typing import Any

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, UnknownPartition, UnknownTask
from rlconform.mutants.memory.helpers import engine_mutant, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names, Wait
from rlconform.wire import object_rows, rows_of


class _Asks(MemoryClient):
    """Claims as if ``asked(call)`` had been asked for."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **self.asked(partition_id, kwargs))
        return replace(meta, fields=list(kwargs["required_fields"]))

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The call that is carried out."""
        raise NotImplementedError


@memory_mutant("CLAIM-01", evidence="rows of a claim of none")
class ClaimZeroIsUnlimited(_Asks):
    """A ``batch_size`` of 0 is taken for "as many as there are"."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "batch_size": 1 << 30} if call["batch_size"] == 0 else call


@memory_mutant("CLAIM-01", evidence="no row ready for 'train' beside")
class ClaimUndeclaredFieldsIgnored(_Asks):
    """Passes over required fields that weren't declared: rows come before such a field is there."""

    def register_partition(self, partition_id: str, fields: Names, *a: Any, **k: Any) -> None:
        super().register_partition(partition_id, fields, *a, **k)
        self.__dict__.setdefault("_declared", {})[partition_id] = set(fields)

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        declared = self.__dict__.get("_declared", {}).get(partition_id, set())
        known = [name for name in call["required_fields"] if name in declared]
        return {**call, "required_fields": known or call["required_fields"]}


@engine_mutant(
    "CLAIM-03",
    "STAT-01",
    "CLEAR-01",
    "CLEAR-05",
    "REG-04",
    "PUT-09",
    "CLAIM-09",
    evidence="rows of the other task",
)
class ClaimCursorSharedBySameFields(MemoryEngine):
    """Keeps a cursor for each list of fields: tasks that need the same ones share their rows."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        owners = self.__dict__.setdefault("_owners", {})
        first = owners.setdefault((partition_id, frozenset(names)), task)
        with self._locked() as index:
            known = task in index.partition(partition_id)._tasks
        return super().claim(partition_id, first if known else task, names, rows, wait_s)


@engine_mutant("CLAIM-03", evidence="whose partition has the long name")
class ClaimCursorKeyAmbiguous(MemoryEngine):
    """Keeps cursors under ``partition:task``: task b:c of partition a shares that of c in a:b."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._cursors: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        cursor = self._cursors[f"{partition_id}:{task}"]
        new = [n for n, i in enumerate(ids) if cursor.setdefault(i, partition_id) == partition_id]
        return [ids[n] for n in new], [tags[n] for n in new]

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        for cursor in self._cursors.values():
            for sample_id, where in list(cursor.items()):
                if where == partition_id and (sample_ids is None or sample_id in sample_ids):
                    del cursor[sample_id]


@memory_mutant(
    "CLAIM-07",
    "CLAIM-01",
    "CLAIM-05",
    evidence="rows before their last field",
    may_fail=("CLAIM-02", "CLAIM-15"),
)
class ClaimFirstFieldSuffices(_Asks):
    """A row counts as ready once the first of the required fields is there."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "required_fields": call["required_fields"][:1]}


@memory_mutant("CLAIM-07", evidence="rows before their last field", may_fail=("CLAIM-02",))
class ClaimLastFieldSuffices(_Asks):
    """A row counts as ready once the last of the required fields is there: the list's last."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "required_fields": call["required_fields"][-1:]}


@engine_mutant(
    "CLAIM-07",
    evidence="rows after it",
    may_fail=("CLAIM-02", "CLAIM-05", "CLAIM-10", "CLAIM-15", "STAT-01"),
)
class ClaimNeverRechecksRow(MemoryEngine):
    """Passes each row once, and not again when its last field has come."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            grown = [row for row in known if names - row.fields]
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            index.partition(partition_id)._queues.discard(grown)


@engine_mutant("CLAIM-07", evidence="an aborted rollout's")
class ClaimEmptyRowsNeverReady(MemoryEngine):
    """Takes a row for produced by its bytes: one of no tokens, or of None, is handed to nobody."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        full = [n for n, i in enumerate(ids) if not self._lacks_bytes(partition_id, i, names)]
        return [ids[n] for n in full], [tags[n] for n in full]

    def _lacks_bytes(self, partition_id: str, sample_id: str, names: Names) -> bool:
        try:
            leaves = self.get(partition_id, [sample_id], names).values()
        except LookupError:  # it was cleared meanwhile
            return False
        return any(
            not rows_of(leaf)[0].numel()
            if isinstance(leaf, Tensor)
            else object_rows(leaf, 1)[0] is None
            for leaf in leaves
        )


@engine_mutant("CLAIM-11", evidence="a task that was not registered")
class ClaimUnknownTaskCreated(MemoryEngine):
    """Takes a task that it doesn't know for a new one, with a cursor of its own (NR-03)."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            index.partition(partition_id)._tasks.add(task)
        return super().claim(partition_id, task, names, rows, wait_s)


@engine_mutant("CLAIM-11", evidence="a partition that was not registered")
class ClaimUnknownPartitionIsEmpty(MemoryEngine):
    """A claim on a partition that it doesn't know finds nothing ready, whenever it is asked."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except UnknownPartition:
            return [], []


@memory_mutant("CLAIM-11", evidence="to be refused; got TimeoutError")
class ClaimUnknownTaskAwaited(MemoryClient):
    """A blocking claim for an unknown task waits for it to be registered (a typo waits forever)."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        try:
            return super().claim_meta(*args, **kwargs)
        except UnknownTask as error:
            if not kwargs.get("blocking", True):
                raise
            time.sleep(float(kwargs.get("timeout_s", 0.0)))  # nothing can end it
            raise TimeoutError("no such task came") from error


@memory_mutant("CLAIM-14", evidence="fields ['y', 'x']")
class ClaimMetaSortsFields(MemoryClient):
    """Keeps required fields as a set: who takes columns by their place takes the wrong ones."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, fields=sorted(meta.fields or []))


@memory_mutant("CLAIM-14", evidence="task_name 'train'")
class ClaimMetaWithoutTask(MemoryClient):
    """Makes the meta of a claim as that of a put, which has no task."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        return replace(super().claim_meta(*args, **kwargs), task_name=None)


@memory_mutant("CLAIM-14", "SHARD-02", evidence="partition_id")
class ClaimMetaRenamesPartition(MemoryClient):
    """Says in the meta how it calls the partition itself; it finds its rows by either name."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, partition_id=f"plane/{meta.partition_id}")

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        if isinstance(partition_id, str):
            partition_id = partition_id.removeprefix("plane/")
        return super().get_samples(sample_ids, partition_id, select_fields)


@memory_mutant("CLAIM-14", evidence="fields ['y', 'x']", may_fail=("CLAIM-08", "GET-11"))
class ClaimMetaNamesAllFields(MemoryClient):
    """Says in the meta which fields the rows have, not which the claim asked for."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            rows = rows_in(index, meta.partition_id, meta.sample_ids)
        named = set(meta.fields or []).union(*(row.fields for row in rows))
        return replace(meta, fields=sorted(named))


@memory_mutant("CLAIM-14", evidence="task_name 'train'")
class ClaimBlockingMetaWithoutTask(MemoryClient):
    """The meta of a blocking claim comes by another way, on which the task gets lost."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, task_name=None) if kwargs.get("blocking", True) else meta
