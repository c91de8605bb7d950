"""Claims that split GRPO groups."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlconform.backends.index.row import generation_of
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import Tags
from rlconform.mutants.memory.helpers import (
    RowSlots,
    claimed_rows,
    engine_mutant,
    give_back,
    mark,
    memory_mutant,
    rows_in,
)
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeTags, Names, Wait


@engine_mutant("CLAIM-15", evidence="one of the groups")
class ClaimLastGroupSplit(MemoryEngine):
    """Splits the last group to return exactly as many rows as a claim asks for."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            partition = index.partition(partition_id)
            size = max(1, partition._group_size)
            whole = rows if wait_s is not None else -(-rows // size) * size
            ids, tags = super().claim(partition_id, task, names, whole, wait_s)
            give_back(partition, rows_in(index, partition_id, ids[rows:]), task)
            return ids[:rows], tags[:rows]


@memory_mutant("CLAIM-15", evidence="rows of the one whole group")
class ClaimGroupSizeIgnored(MemoryClient):
    """Accepts ``grpo_group_size`` and ignores it."""

    def register_partition(self, *args: Any, **kwargs: Any) -> None:
        super().register_partition(*args, **{**kwargs, "grpo_group_size": None})


@engine_mutant("CLAIM-15", evidence="rows of the one whole group")
class ClaimGroupsByNeighbouringSlots(RowSlots):
    """Groups rows by neighbouring slots: reused slots mix rows of two prompts (TQ-31)."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                size = index.partition(partition_id)._group_size
                if row.group is not None:
                    row.group = None, self._slots[partition_id][row.sample_id] // size


@engine_mutant("CLAIM-15", evidence="rows of two half groups")
class ClaimGroupsByFirstIdPart(MemoryEngine):
    """Cuts uids at the first underscore, so ``step3_p0`` and ``step3_p1`` are one group."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                if row.group is not None and generation_of(row.sample_id) is not None:
                    row.group = row.sample_id.partition("_")[0], row.group[1]


@engine_mutant("CLAIM-15", evidence="of which one lacks a field")
class ClaimGroupPartlyReady(MemoryEngine):
    """Returns the ready rows of a group whose other rows still lack a required field."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            partition = index.partition(partition_id)
            size = partition._group_size
            if size == 1 or wait_s is not None or not partition.is_ready(task, frozenset(names), 0):
                return super().claim(partition_id, task, names, rows, wait_s)
            there = Counter(row.group for row in partition._rows.values() if row.fields)
            ready = [
                row
                for row in partition._rows.values()
                if there[row.group] == size and row.fields.issuperset(names)
                if task not in row.claimed_by
            ]
            groups = list(dict.fromkeys(row.group for row in ready))[: rows // size]
            chosen = [row for row in ready if row.group in groups]
            mark(partition, chosen, task)
            return claimed_rows(chosen)


@engine_mutant("CLAIM-15", evidence="the claim to wait for a whole group")
class ClaimBlockingCountsRowsNotGroups(MemoryEngine):
    """Counts ready rows, not whole groups, to end the wait of a blocking claim."""

    def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait
    ) -> tuple[list[str], list[Tags]]:
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
