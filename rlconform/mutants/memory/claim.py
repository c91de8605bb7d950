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
    """Makes each claim with the arguments that ``asked`` returns instead of the caller's."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **self.asked(partition_id, kwargs))
        return replace(meta, fields=list(kwargs["required_fields"]))

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The arguments of the claim that is made."""
        raise NotImplementedError


@memory_mutant("CLAIM-01", evidence="rows of a claim of none")
class ClaimZeroIsUnlimited(_Asks):
    """Treats a ``batch_size`` of 0 as "all rows"."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "batch_size": 1 << 30} if call["batch_size"] == 0 else call


@memory_mutant("CLAIM-01", evidence="no row ready for 'train' beside")
class ClaimUndeclaredFieldsIgnored(_Asks):
    """Ignores required fields that were not declared, so returns rows that lack them."""

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
    """Keeps one cursor for each list of fields, so tasks that require the same share rows."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        owners = self.__dict__.setdefault("_owners", {})
        first = owners.setdefault((partition_id, frozenset(names)), task)
        with self._locked() as index:
            known = task in index.partition(partition_id)._tasks
        return super().claim(partition_id, first if known else task, names, rows, wait_s)


@engine_mutant("CLAIM-03", evidence="whose partition has the long name")
class ClaimCursorKeyAmbiguous(MemoryEngine):
    """Keys cursors by ``partition:task``, so task b:c of partition a and c of a:b share one."""

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
    """Treats a row as ready when it has the first of the required fields."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "required_fields": call["required_fields"][:1]}


@memory_mutant("CLAIM-07", evidence="rows before their last field", may_fail=("CLAIM-02",))
class ClaimLastFieldSuffices(_Asks):
    """Treats a row as ready when it has the last field in the list of required fields."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "required_fields": call["required_fields"][-1:]}


@engine_mutant(
    "CLAIM-07",
    evidence="rows after it",
    may_fail=("CLAIM-02", "CLAIM-05", "CLAIM-10", "CLAIM-15", "STAT-01"),
)
class ClaimNeverRechecksRow(MemoryEngine):
    """Checks a row only at its first put: a row that gets its last field later is never claimed."""

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
    """Treats a field without bytes as not produced: never returns rows of no tokens or None."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        full = [n for n, i in enumerate(ids) if not self._lacks_bytes(partition_id, i, names)]
        return [ids[n] for n in full], [tags[n] for n in full]

    def _lacks_bytes(self, partition_id: str, sample_id: str, names: Names) -> bool:
        try:
            leaves = self.get(partition_id, [sample_id], names).values()
        except LookupError:  # it was cleared in the meantime
            return False
        return any(
            not rows_of(leaf)[0].numel()
            if isinstance(leaf, Tensor)
            else object_rows(leaf, 1)[0] is None
            for leaf in leaves
        )


@engine_mutant("CLAIM-11", evidence="a task that was not registered")
class ClaimUnknownTaskCreated(MemoryEngine):
    """Creates an unknown task, with a new cursor, instead of rejecting the claim (NR-03)."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            index.partition(partition_id)._tasks.add(task)
        return super().claim(partition_id, task, names, rows, wait_s)


@engine_mutant("CLAIM-11", evidence="a partition that was not registered")
class ClaimUnknownPartitionIsEmpty(MemoryEngine):
    """Returns an empty batch for a claim on an unknown partition instead of an error."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except UnknownPartition:
            return [], []


@memory_mutant("CLAIM-11", evidence="to be refused; got TimeoutError")
class ClaimUnknownTaskAwaited(MemoryClient):
    """Waits for an unknown task to be registered, so a claim with a typo waits for its timeout."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        try:
            return super().claim_meta(*args, **kwargs)
        except UnknownTask as error:
            if not kwargs.get("blocking", True):
                raise
            time.sleep(float(kwargs.get("timeout_s", 0.0)))  # nothing ends the wait early
            raise TimeoutError("no such task came") from error


@memory_mutant("CLAIM-14", evidence="fields ['y', 'x']")
class ClaimMetaSortsFields(MemoryClient):
    """Sorts the meta's fields: a caller that reads columns by position reads the wrong ones."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, fields=sorted(meta.fields or []))


@memory_mutant("CLAIM-14", evidence="task_name 'train'")
class ClaimMetaWithoutTask(MemoryClient):
    """Returns the meta of a claim without its task, like the meta of a put."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        return replace(super().claim_meta(*args, **kwargs), task_name=None)


@memory_mutant("CLAIM-14", "SHARD-02", evidence="partition_id")
class ClaimMetaRenamesPartition(MemoryClient):
    """Returns its internal name of the partition in the meta; reads accept both names."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, partition_id=f"plane/{meta.partition_id}")

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        if isinstance(partition_id, str):
            partition_id = partition_id.removeprefix("plane/")
        return super().get_samples(sample_ids, partition_id, select_fields)


@memory_mutant("CLAIM-14", evidence="fields ['y', 'x']", may_fail=("CLAIM-08", "GET-11"))
class ClaimMetaNamesAllFields(MemoryClient):
    """Lists in the meta every field that the rows have, not the fields that the claim required."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            rows = rows_in(index, meta.partition_id, meta.sample_ids)
        named = set(meta.fields or []).union(*(row.fields for row in rows))
        return replace(meta, fields=sorted(named))


@memory_mutant("CLAIM-14", evidence="task_name 'train'")
class ClaimBlockingMetaWithoutTask(MemoryClient):
    """Omits the task from the meta of a blocking claim, which has a separate code path."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, task_name=None) if kwargs.get("blocking", True) else meta
