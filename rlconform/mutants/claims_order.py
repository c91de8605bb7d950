"""Claims whose rows go by rank, by order, or by group, and what their meta says of them."""

# ruff: noqa: ARG002 - a mutant looks at what it needs of a call

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tensordict import TensorDict, TensorDictBase

from rlconform.backends.index.row import IndexRow, generation_of
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.engines import breaks, breaks_engine, give_back, mark, rows_in

Claimed = tuple[list[str], list[Tags]]


class _KnowsRanks(MemoryClient):
    """Claims rows, and says of the claim for which rank they are."""

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        batch_size: int,
        dp_rank: int | None = None,
        blocking: bool = True,
        timeout_s: float = 60.0,
    ) -> KVBatchMeta:
        """Claim rows for a rank."""
        call = (partition_id, task_name, required_fields, batch_size, dp_rank, blocking, timeout_s)
        if not self.splits(dp_rank):
            return super().claim_meta(*call)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            partition = index.partition(partition_id)
            tasks = set(partition._tasks)
            if task_name in tasks:
                partition._tasks.add(f"{task_name} of rank {dp_rank}")
        cursor = f"{task_name} of rank {dp_rank}"
        meta = super().claim_meta(partition_id, cursor, *call[2:])
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            mark(
                index.partition(partition_id),
                rows_in(index, partition_id, meta.sample_ids),
                task_name,
            )
        return replace(meta, task_name=task_name)

    def splits(self, rank: int | None) -> bool:
        """Whether the rank has a cursor of its own."""
        return rank is not None


@breaks(
    "CLAIM-12", says="claims by id over two ranks", may_fail=("CLAIM-02", "CLAIM-10", "STAT-01")
)
class CursorForEachRank(_KnowsRanks):
    """Hands each rank all rows, as a broadcast would."""


@breaks(
    "CLAIM-12", says="claims by id over two ranks", may_fail=("CLAIM-02", "CLAIM-10", "STAT-01")
)
class TakesRankZeroForNone(_KnowsRanks):
    """Asks ``if dp_rank``: rank 0 has the task's cursor, and all others have their own."""

    def splits(self, rank: int | None) -> bool:
        """Whether the rank has a cursor of its own."""
        return bool(rank)


class _DealsRows(MemoryClient):
    """Deals rows to so many ranks by their number."""

    ranks: int

    def claim_meta(self, partition_id: str, task_name: str, *args: Any, **kw: Any) -> KVBatchMeta:
        """Claim rows of the rank's residue."""
        rank, size = kw.get("dp_rank"), kw.get("batch_size")
        if rank is None or kw.get("blocking"):
            return super().claim_meta(partition_id, task_name, *args, **kw)
        all_rows = {**kw, "batch_size": 1 << 20}
        meta = super().claim_meta(partition_id, task_name, *args, **all_rows)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            rows = rows_in(index, partition_id, meta.sample_ids)
            own = [row for row in rows if row.age % self.ranks == rank % self.ranks][:size]
            rest = [row for row in rows if row not in own]
            give_back(index.partition(partition_id), rest, task_name)
        kept = [n for n, i in enumerate(meta.sample_ids) if i in {row.sample_id for row in own}]
        return meta.subset(kept)


@breaks("CLAIM-12", says="rows of the one rank that asks")
class DealsRowsToTwoRanks(_DealsRows):
    """Deals rows to two ranks: the half of one that never asks is never claimed."""

    ranks = 2


@breaks("CLAIM-12", says="claims by id over two ranks", may_fail=("CLAIM-02",))
class DealsRowsToEightRanks(_DealsRows):
    """Deals rows to the eight ranks of its configuration, however many ask."""

    ranks = 8


class _Chooses(MemoryEngine):
    """Claims the rows that come first in ``order``."""

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim all that are ready, and give back those that come later."""
        with self._locked() as index:
            partition = index.partition(partition_id)
            if wait_s is not None or partition._group_size > 1:
                return super().claim(partition_id, task, names, rows, wait_s)
            ready = partition.claim(task, frozenset(names), 1 << 20)
            ready.sort(key=lambda row: self.order(partition_id, row))
            give_back(partition, ready[rows:], task)
            chosen = ready[:rows]
            return [row.sample_id for row in chosen], [dict(row.tags) for row in chosen]

    def order(self, partition_id: str, row: IndexRow) -> Any:
        """Rows with the smallest come first."""
        raise NotImplementedError


@breaks_engine("CLAIM-13", says="rows in the order they were put")
class ServesTheNewest(_Chooses):
    """Keeps what is ready on a stack: a row that isn't claimed at once waits till the end."""

    def order(self, partition_id: str, row: IndexRow) -> Any:
        """The newest first."""
        return -row.age


@breaks_engine("CLAIM-13", says="rows in the order they were put")
class ServesByName(_Chooses):
    """Serves rows in the order of their names: as long as new ones come, the last starve."""

    def order(self, partition_id: str, row: IndexRow) -> Any:
        """By name."""
        return row.sample_id


class _Slots(MemoryEngine):
    """Gives rows the lowest free slot. By itself it is right."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._slots: dict[str, dict[str, int]] = {}

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and give slots to rows that have none."""
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            taken = self._slots.setdefault(partition_id, {})
            living = index.partition(partition_id)._rows
            for sample_id in taken.keys() - living:
                del taken[sample_id]
            for sample_id in sample_ids:
                free = min(set(range(len(taken) + 1)) - set(taken.values()))
                taken.setdefault(sample_id, free)


@breaks_engine("CLAIM-13", says="rows in the order they were put")
class ServesBySlot(_Slots, _Chooses):
    """Serves rows by their slots: one that takes over a cleared row's slot jumps the queue."""

    def order(self, partition_id: str, row: IndexRow) -> Any:
        """By slot."""
        return self._slots.get(partition_id, {}).get(row.sample_id, 0)


@breaks("CLAIM-14", says="fields ['y', 'x']")
class SortsTheFields(MemoryClient):
    """Keeps required fields as a set: who takes columns by their place takes the wrong ones."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, fields=sorted(meta.fields or []))


@breaks("CLAIM-14", says="task_name 'train'")
class ForgetsTheTask(MemoryClient):
    """Makes the meta of a claim as that of a put, which has no task."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        return replace(super().claim_meta(*args, **kwargs), task_name=None)


@breaks("CLAIM-14", "SHARD-02", says="partition_id")
class NamesThePartitionItsOwnWay(MemoryClient):
    """Says in the meta how it calls the partition itself; it finds its rows by either name."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        meta = super().claim_meta(*args, **kwargs)
        return replace(meta, partition_id=f"plane/{meta.partition_id}")

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read rows."""
        if isinstance(partition_id, str):
            partition_id = partition_id.removeprefix("plane/")
        return super().get_samples(sample_ids, partition_id, select_fields)


@breaks("CLAIM-14", says="fields ['y', 'x']", may_fail=("CLAIM-08", "GET-11"))
class NamesEveryField(MemoryClient):
    """Says in the meta which fields the rows have, not which the claim asked for."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows."""
        meta = super().claim_meta(*args, **kwargs)
        with self._engine._locked() as index:  # type: ignore[attr-defined]
            rows = rows_in(index, meta.partition_id, meta.sample_ids)
        named = set(meta.fields or []).union(*(row.fields for row in rows))
        return replace(meta, fields=sorted(named))


@breaks("CLAIM-15", says="rows of the one whole group")
class IgnoresTheGroupSize(MemoryClient):
    """Takes ``grpo_group_size`` and makes nothing of it."""

    def register_partition(self, *args: Any, **kwargs: Any) -> None:
        """Register without groups."""
        super().register_partition(*args, **{**kwargs, "grpo_group_size": None})


@breaks_engine("CLAIM-15", says="rows of the one whole group")
class GroupsNeighbours(_Slots):
    """Takes neighbouring slots for a group: reused, they hold rows of two prompts (TQ-31)."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and make groups of slots."""
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                size = index.partition(partition_id)._group_size
                if row.group is not None:
                    row.group = None, self._slots[partition_id][row.sample_id] // size


@breaks_engine("CLAIM-15", says="rows of two half groups")
class GroupsByTheFirstPart(MemoryEngine):
    """Takes a uid to end at its first underscore: ``step3_p0`` and ``step3_p1`` are one group."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and group rows by what comes first in their names."""
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                if row.group is not None and generation_of(row.sample_id) is not None:
                    row.group = row.sample_id.partition("_")[0], row.group[1]
