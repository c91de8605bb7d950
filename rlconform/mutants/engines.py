"""Mutants of the memory plane's engine: the arguments that they see have been checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from rlconform.backends.index import Index, Names
from rlconform.backends.index.partition import PartitionIndex
from rlconform.backends.index.row import NO_NAMES, IndexRow
from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.client import _capacity
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants import IMPATIENT, Mutant, broken

#: For a client class with a defect.
breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


def breaks_engine(*fails: str, **how: Any) -> Callable[[type[MemoryEngine]], Mutant]:
    """``breaks`` for an engine class with a defect, behind a right client."""

    def made(engine: type[MemoryEngine]) -> Mutant:
        class Client(MemoryClient):
            def __init__(
                self, cfg: Mapping[str, Any] | None = None, bootstrap: bool = True
            ) -> None:
                self._engine = engine(_capacity(cfg), bootstrap)

        Client.__name__, Client.__doc__ = engine.__name__, engine.__doc__
        return breaks(*fails, **how)(Client)

    return made


def rows_in(index: Index, partition_id: str, sample_ids: Iterable[str] | None) -> list[IndexRow]:
    """Those of the rows that are there; with None all."""
    partition = index._partitions.get(partition_id)
    known = {} if partition is None else partition._rows
    return [known[i] for i in (known if sample_ids is None else sample_ids) if i in known]


def give_back(partition: PartitionIndex, rows: Iterable[IndexRow], task: str) -> None:
    """Let the task claim the rows again."""
    rows = list(rows)
    for row in rows:
        row.claimed_by -= {task}
    partition._claimed[task] -= len(rows)
    partition._queues.feed([(row, row.fields) for row in rows])


def mark(partition: PartitionIndex, rows: Iterable[IndexRow], task: str) -> None:
    """Count the rows as claimed by the task, as far as they weren't."""
    new = [row for row in rows if task not in row.claimed_by]
    for row in new:
        row.claimed_by |= {task}
    partition._queues.discard(new, task)
    partition._claimed[task] += len(new)


def take_back(partition: PartitionIndex, row: IndexRow, names: Names) -> None:
    """Count these fields of a row as never produced."""
    if names:
        row.fields -= names
        partition._fields.drop(Counter([names]))
        partition._queues.discard([row])
        partition._queues.feed([(row, row.fields)])


__all__ = ["NO_NAMES", "breaks", "breaks_engine", "give_back", "mark", "rows_in", "take_back"]
