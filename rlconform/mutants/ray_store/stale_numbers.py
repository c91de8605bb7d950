"""Numbers that a process keeps: of a partition, of its messages, of a row's chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from tensordict import TensorDict

from rlconform.backends.ray_store.client import RayStoreClient
from rlconform.backends.ray_store.controller import Controller, Refusal
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import ControllerClient, ray_mutant
from rlconform.wire import rows_of, stack_or_nest


class _NumbersPartitions(Controller):
    _numbered = State(list[str])  # names by number
    _used = State(set[str])  # partitions that have had rows since they got their number

    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> Any:
        answer = await super().register(partition_id, tasks, group_size)
        if not isinstance(answer, Refusal):
            self._number(partition_id, self._emptied())
        return answer

    async def number_of(self, partition_id: str) -> int:
        self._used.add(partition_id)
        return self._number(partition_id, None)

    async def name_of(self, number: int) -> str:
        return self._numbered[number]

    def _number(self, partition_id: str, free: int | None) -> int:
        if partition_id not in self._numbered:
            if free is None:
                self._numbered.append(partition_id)
            else:
                self._used.discard(self._numbered[free])
                self._numbered[free] = partition_id
        return self._numbered.index(partition_id)

    def _emptied(self) -> int | None:
        free = [n for n, name in enumerate(self._numbered) if self._was_emptied(name)]
        return min(free, default=None)

    def _was_emptied(self, name: str) -> bool:
        return name in self._used and not self._index.sample_ids(name)


class _PutsByNumber(ControllerClient):
    """A client that puts to the partition with the number that it knows from its first put."""

    _of_process: ClassVar[dict[str, dict[str, int]]] = {}  # numbers by name, for each plane

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        plane = self._connection._controller._actor_id.hex()
        self._numbers = self._of_process.setdefault(plane, {})

    def register_partition(self, partition_id: str, *args: Any, **kwargs: Any) -> None:
        super().register_partition(partition_id, *args, **kwargs)
        self._numbers.pop(partition_id, None)

    def clear_samples(self, sample_ids: Any, partition_id: str) -> None:
        super().clear_samples(sample_ids, partition_id)
        self._numbers.pop(partition_id, None)

    def put_samples(
        self, sample_ids: Any, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        if not (isinstance(partition_id, str) and partition_id and sample_ids):
            return super().put_samples(sample_ids, partition_id, *args, **kwargs)
        if partition_id not in self._numbers:
            self._numbers[partition_id] = self._connection.call("number_of", partition_id)
        name = self._connection.call("name_of", self._numbers[partition_id])
        receipt = super().put_samples(sample_ids, name, *args, **kwargs)
        return replace(receipt, partition_id=partition_id)


@ray_mutant("REG-04", evidence="rows of", may_fail="CLEAR-01 LIFE-06 PUT-13")
class PartitionNumberGivenAgain(_PutsByNumber):
    """Puts to the partition that has the number which the process knows from its first put.

    The number of an emptied partition is given to the next that is registered.
    """

    controller_class = _NumbersPartitions


#: Partitions that are registered before the number of an emptied one is given again.
_LATER = 16


class _GivesOldNumbersAgain(_NumbersPartitions):
    def _emptied(self) -> int | None:
        free = super()._emptied()
        return free if free is not None and len(self._numbered) - free > _LATER else None


@ray_mutant("REG-04", evidence="rows of", may_fail="CLEAR-01 LIFE-06 PUT-13")
class PartitionNumberGivenAgainLater(_PutsByNumber):
    """Puts to the partition that has the number which the process knows from its first put.

    The number of an emptied partition is given to another once 16 were registered since.
    """

    controller_class = _GivesOldNumbersAgain


class _LeavesLastChunks(RayStoreClient):
    """Leaves the last chunks of another process's row if the new row has fewer chunks."""

    _chunk: ClassVar[int]  # bytes
    _of_process: ClassVar[dict[str, set[tuple[str, str, str]]]] = {}  # rows it put, by plane

    def __init__(self, cfg: Any, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        plane = self._connection._controller._actor_id.hex()
        self._own = self._of_process.setdefault(plane, set())

    def put_samples(
        self, sample_ids: Any, partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta:
        stored = fields
        for name, leaf in dict(fields.items() if isinstance(fields, TensorDict) else ()).items():
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.jagged:
                longer = self._with_old_ends(list(sample_ids), partition_id, name, leaf)
                stored = TensorDict({**dict(stored.items()), name: longer}, fields.batch_size)
        receipt = super().put_samples(sample_ids, partition_id, stored, tags)
        self._own.update((partition_id, i, n) for i in sample_ids for n in receipt.fields or [])
        return receipt

    def _with_old_ends(
        self, ids: list[str], partition_id: str, name: str, leaf: torch.Tensor
    ) -> torch.Tensor:
        rows = list(rows_of(leaf))
        for place, sample_id in enumerate(ids[: len(rows)]):
            if (partition_id, sample_id, name) not in self._own:
                rows[place] = self._with_old_end(sample_id, partition_id, name, rows[place])
        return stack_or_nest(rows)

    def _with_old_end(
        self, sample_id: str, partition_id: str, name: str, row: torch.Tensor
    ) -> torch.Tensor:
        try:
            (old,) = rows_of(super().get_samples([sample_id], partition_id, [name]).get(name))
        except (LookupError, ValueError, TypeError):
            return row  # there is none
        size = max(1, row[:1].numel() * row.element_size())
        chunks = max(1, -(-len(row) * size // self._chunk))
        end = old[chunks * self._chunk // size :]
        same = old.dtype == row.dtype and old.shape[1:] == row.shape[1:]
        return torch.cat([row, end]) if same and len(end) else row


class _ListsTasks(Controller):
    _lists = State(dict[str, list[str]])

    async def register(self, partition_id: str, tasks: list[str], group_size: int) -> Any:
        partition = self._index._partitions.get(partition_id)
        fresh = partition is None or (partition._ever_produced and not partition._rows)
        answer = await super().register(partition_id, tasks, group_size)
        if not isinstance(answer, Refusal):
            listed = [] if fresh else self._lists.get(partition_id, [])
            self._lists[partition_id] = [*listed, *(t for t in tasks if t not in listed)]
        return answer

    async def tasks_listed(self, partition_id: str) -> list[str]:
        """Return the partition's tasks as first registered, those of later registrations last."""
        return self._lists.get(partition_id, [])


@ray_mutant("CLAIM-03", evidence="claims", may_fail="CLAIM-02 REG-03 REG-08 STAT-01 LIFE-06")
class TasksNumberedByOwnList(ControllerClient):
    """Names a task by its place in the list that the process has registered itself."""

    controller_class = _ListsTasks
    _meant = State(dict[tuple[str, str], str])

    def register_partition(
        self,
        partition_id: str,
        fields: Any,
        num_samples: int,
        consumer_tasks: list[str],
        *rest: Any,
        **more: Any,
    ) -> None:
        super().register_partition(partition_id, fields, num_samples, consumer_tasks, *rest, **more)
        listed = self._connection.call("tasks_listed", partition_id)
        for own, place in zip(consumer_tasks, listed, strict=False):
            self._meant[partition_id, own] = place

    def claim_meta(self, partition_id: str, task_name: str, *rest: Any, **more: Any) -> KVBatchMeta:
        meant = self._meant.get((partition_id, task_name), task_name)
        meta = super().claim_meta(partition_id, meant, *rest, **more)
        return replace(meta, task_name=task_name)


@ray_mutant("CLAIM-03", evidence="claims again", may_fail="CLAIM-02 REG-03 STAT-01 STAT-02")
class TasksNumberedByFirstList(ControllerClient):
    """Names a task by its place in the list that the process has asked for first.

    It asks again for a task that it does not know, and after a registration of its own.
    """

    controller_class = _ListsTasks
    _known = State(dict[str, list[str]])

    def register_partition(self, partition_id: str, *rest: Any, **more: Any) -> None:
        super().register_partition(partition_id, *rest, **more)
        self._known.pop(partition_id, None)

    def claim_meta(self, partition_id: str, task_name: str, *rest: Any, **more: Any) -> KVBatchMeta:
        listed = self._listed(partition_id)
        if task_name not in self._known.get(partition_id, []):
            self._known[partition_id] = listed
        known = self._known[partition_id]
        place = known.index(task_name) if task_name in known else len(known)
        meant = listed[place] if place < len(listed) else task_name
        meta = super().claim_meta(partition_id, meant, *rest, **more)
        return replace(meta, task_name=task_name)

    def _listed(self, partition_id: str) -> list[str]:
        listed: list[str] = self._connection.call("tasks_listed", partition_id)
        return listed


@ray_mutant("PUT-13", evidence="row")
class LastChunksOfLongRowStay(_LeavesLastChunks):
    """Leaves the last chunks of another process's row if the new row has fewer chunks."""

    _chunk = 1 << 16


@ray_mutant("PUT-13", evidence="row")
class LastMegabytesOfLongRowStay(_LeavesLastChunks):
    """Leaves the last chunks, of 2 MiB each, of another process's row if the new one has fewer."""

    _chunk = 2 << 20
