"""Claims that hand out other rows than they should, or say other things of them.

Those that wait are in ``waits``, those that give rows again or never in ``claims_again``.
"""

# ruff: noqa: ARG002 - a mutant looks at what it needs of a call

from __future__ import annotations

import time
from collections import Counter, deque
from dataclasses import replace
from typing import Any

from tensordict import TensorDictBase

from rlconform.backends.index.row import IndexRow
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags, UnknownPartition
from rlconform.mutants.engines import breaks, breaks_engine, give_back, rows_in

Claimed = tuple[list[str], list[Tags]]


def _claimed(rows: list[IndexRow]) -> Claimed:
    return [row.sample_id for row in rows], [dict(row.tags) for row in rows]


class _Asks(MemoryClient):
    """Claims as if ``asked(call)`` had been asked for."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows; the meta has the fields of the call."""
        meta = super().claim_meta(partition_id, *args, **self.asked(partition_id, kwargs))
        return replace(meta, fields=list(kwargs["required_fields"]))

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The call that is carried out."""
        raise NotImplementedError


@breaks("CLAIM-01", says="rows of a claim of none")
class TakesZeroForNoLimit(_Asks):
    """A ``batch_size`` of 0 is taken for "as many as there are"."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The call, with a large batch size for 0."""
        return {**call, "batch_size": 1 << 30} if call["batch_size"] == 0 else call


@breaks("CLAIM-01", says="no row ready for 'train' beside")
class RequiresDeclaredFieldsOnly(_Asks):
    """Passes over required fields that weren't declared: rows come before such a field is there."""

    def register_partition(self, partition_id: str, fields: list[str], *a: Any, **k: Any) -> None:
        """Register, and note the fields."""
        super().register_partition(partition_id, fields, *a, **k)
        self.__dict__.setdefault("_declared", {})[partition_id] = set(fields)

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The call for those of the fields that were declared."""
        declared = self.__dict__.get("_declared", {}).get(partition_id, set())
        known = [name for name in call["required_fields"] if name in declared]
        return {**call, "required_fields": known or call["required_fields"]}


@breaks(
    "CLAIM-07",
    "CLAIM-01",
    "CLAIM-05",
    says="rows before their last field",
    may_fail=("CLAIM-02", "CLAIM-15"),
)
class WaitsForTheFirstField(_Asks):
    """A row counts as ready once the first of the required fields is there."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The call for the first field."""
        return {**call, "required_fields": call["required_fields"][:1]}


@breaks("CLAIM-07", says="rows before their last field", may_fail=("CLAIM-02",))
class WaitsForTheLastField(_Asks):
    """A row counts as ready once the last of the required fields is there: the list's last."""

    def asked(self, partition_id: str, call: dict[str, Any]) -> dict[str, Any]:
        """The call for the last field."""
        return {**call, "required_fields": call["required_fields"][-1:]}


@breaks_engine("CLAIM-02", says="rows not yet claimed", may_fail=("CLAIM-10", "CLEAR-01"))
class CountsRowsFromTheFront(MemoryEngine):
    """A cursor is a count of rows handed out: rows cleared behind it make it pass over others."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._passed_over: Counter[tuple[str, str]] = Counter()

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows; all behind them move up."""
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                self._passed_over.update((partition_id, task) for task in row.claimed_by)
        super().clear(partition_id, sample_ids)
        if not rows_in(index, partition_id, None):  # an empty partition counts anew
            for key in [key for key in self._passed_over if key[0] == partition_id]:
                del self._passed_over[key]

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim from where the count leads."""
        over = self._passed_over.pop((partition_id, task), 0)
        if over:
            super().claim(partition_id, task, names, over, None)
        return super().claim(partition_id, task, names, rows, wait_s)


@breaks_engine("CLAIM-02", says="lost", chance=True)
class GrowsInTwoSteps(MemoryEngine):
    """Copies its table of what is ready into a larger one while others write to the old (TQ-08)."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._room: dict[str, int] = {}

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and make the table larger if it is full."""
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            partition = index.partition(partition_id)
            room = self._room.setdefault(partition_id, 64)
            copied = set(partition._rows)
            if len(copied) <= room:
                return
            self._room[partition_id] = 2 * room
        time.sleep(0.005)  # the copy takes its time
        with self._locked() as index:
            for sample_id in partition._rows.keys() - copied:
                partition._queues.discard([partition._rows[sample_id]])
                partition._rows[sample_id].claimed_by = frozenset(partition._tasks)


@breaks_engine(
    "CLAIM-03",
    "STAT-01",
    "CLEAR-01",
    "CLEAR-05",
    "REG-04",
    "PUT-09",
    "CLAIM-09",
    says="rows of the other task",
)
class OneCursorForTheSameFields(MemoryEngine):
    """Keeps a cursor for each list of fields: tasks that need the same ones share their rows."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim from the cursor of the fields."""
        owners = self.__dict__.setdefault("_owners", {})
        first = owners.setdefault((partition_id, frozenset(names)), task)
        with self._locked() as index:
            known = task in index.partition(partition_id)._tasks
        return super().claim(partition_id, first if known else task, names, rows, wait_s)


@breaks_engine(
    "CLAIM-10", says="cleared", may_fail=("CLAIM-02", "CLAIM-15", "CLEAR-01", "CLEAR-04", "REG-03")
)
class KeepsAFewRowsAhead(MemoryEngine):
    """Takes twice the rows asked for and keeps half for the next claim, cleared by then or not."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._ahead: dict[tuple[str, str, frozenset[str]], deque[IndexRow]] = {}

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows: first those that are kept."""
        key = (partition_id, task, frozenset(names))
        with self._locked() as index:
            partition = index.partition(partition_id)
            kept = self._ahead.setdefault(key, deque())
            if wait_s is not None:
                give_back(partition, [row for row in kept if row.fields], task)
                kept.clear()
            elif len(kept) < rows:
                kept += partition.claim(task, key[2], 2 * rows - len(kept))
            if wait_s is None:
                return _claimed([kept.popleft() for _ in range(min(rows, len(kept)))])
        return super().claim(partition_id, task, names, rows, wait_s)

    def all_claimed(self, partition_id: str, tasks: list[str]) -> bool:
        """Whether all was claimed, and is not kept here."""
        kept = [
            row
            for (where, task, _), rows in self._ahead.items()
            for row in rows
            if where == partition_id and task in tasks and row.fields
        ]
        return not kept and super().all_claimed(partition_id, tasks)


@breaks_engine("CLAIM-11", says="a task that was not registered")
class MakesATaskOfATypo(MemoryEngine):
    """Takes a task that it doesn't know for a new one, with a cursor of its own (NR-03)."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows for whatever task."""
        with self._locked() as index:
            index.partition(partition_id)._tasks.add(task)
        return super().claim(partition_id, task, names, rows, wait_s)


@breaks_engine("CLAIM-11", says="a partition that was not registered")
class FindsNothingInATypo(MemoryEngine):
    """A claim on a partition that it doesn't know finds nothing ready, whenever it is asked."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows."""
        try:
            return super().claim(partition_id, task, names, rows, wait_s)
        except UnknownPartition:
            return [], []
