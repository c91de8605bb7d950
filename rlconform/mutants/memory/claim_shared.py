"""Claims that share a bit, a place in a table, or a group size with other claims."""

from __future__ import annotations

import threading
import time
from typing import Any

from rlconform.backends.index.row import group_of
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import State
from rlconform.mutants.memory.helpers import engine_mutant, find_rows, held, mark
from rlconform.mutants.types import Claimed, Names, Wait

#: Bits of the mask in which a row's claims are kept.
BITS = 64


@engine_mutant("CLAIM-03", evidence="rows of the task")
class SixtyFifthTaskSharesABit(MemoryEngine):
    """Keeps the claims of a row in 64 bits, the task of number 65 in that of number 1."""

    _numbers = State(dict[str, list[str]])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        known = self._numbers.setdefault(partition_id, [])
        known += [task for task in tasks if task not in known]

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        claimed = super().claim(partition_id, task, names, rows, wait_s)
        known = self._numbers.get(partition_id, [])
        bit = known.index(task) % BITS if task in known else None
        partition = held(self, partition_id)
        for other in (each for n, each in enumerate(known) if n % BITS == bit and each != task):
            mark(partition, find_rows(self, partition_id, claimed[0]), other)
        return claimed


@engine_mutant("CLAIM-05", evidence="a claim")
class WaiterOfAnotherPartitionTakesThePlace(MemoryEngine):
    """Keeps one waiting partition for each task's name: the one that began to wait last."""

    _newest = State(dict[str, str])

    def _wait_until_ready(
        self, partition_id: str, task: str, required: frozenset[str], rows: int, wait_s: float
    ) -> None:
        deadline = time.monotonic() + wait_s
        partition = self._plane.index.partition(partition_id)
        partition.check_exact(rows)
        if partition.is_ready(task, required, rows):
            return
        self._newest[task] = partition_id
        while (left := deadline - time.monotonic()) > 0:
            self._plane.changed.wait(min(left, threading.TIMEOUT_MAX))
            self.check_open()
            partition = self._plane.index.partition(partition_id)
            woken = self._newest.get(task) == partition_id
            if woken and partition.is_ready(task, required, rows):
                return
        super()._wait_until_ready(partition_id, task, required, rows, 0.0)


@engine_mutant("CLAIM-15", evidence="rows of a claim of two")
class RefusedRegistrationChangesGroupSize(MemoryEngine):
    """Takes a registration's group size before it refuses it, as rows of another size live."""

    def register(self, partition_id: str, tasks: Names, group_size: int) -> Any:
        try:
            super().register(partition_id, tasks, group_size)
        except ValueError:
            partition = held(self, partition_id)
            partition._group_size = group_size
            ungrouped = 0
            for row in partition._rows.values():
                row.group = group_of(row.sample_id, group_size, ungrouped)
                ungrouped += row.group[0] is None
            partition._queues._queues.clear()
            raise
