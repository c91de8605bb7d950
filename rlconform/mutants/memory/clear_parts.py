"""Clears of a part, after which what is left has lost something."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.index.block import Block
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import (
    clear_mutant,
    engine_mutant,
    find_rows,
    give_back,
    held,
    partition_of,
    take_back,
)
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import rows_of
from rlconform.wire.serialization import dumps

#: Rows of a put from which on it is a block of its own.
BLOCK = 8


@engine_mutant("CLEAR-01", evidence="claims again", may_fail="CLAIM-02 CLAIM-08 STAT-01")
class ClearCompactsClaimsOfFirstTask(MemoryEngine):
    """Keeps claims as a bitmap per put and task, and compacts a put once most of it is cleared.

    Only the bitmap of the first task is rewritten: all others may claim what is left once more.
    """

    _puts = State(dict[str, list[list[str]]])
    _first = State(dict[str, str])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._first[partition_id] = next(iter(tasks), "")

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        rows = held(self, partition_id)._rows
        new = [i for i in ids if i not in rows]
        super().put(partition_id, ids, fields, tags)
        if len(new) >= BLOCK:
            self._puts.setdefault(partition_id, []).append(new)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        super().clear(partition_id, sample_ids)
        partition = held(self, partition_id)
        for put in list(self._puts.get(partition_id, [])):
            left = find_rows(self, partition_id, put)
            if 2 * len(left) >= len(put):
                continue
            self._puts[partition_id].remove(put)
            for task in partition._tasks - {self._first.get(partition_id)}:
                give_back(partition, [row for row in left if task in row.claimed_by], task)


@clear_mutant("CLAIM-15", evidence="half a group")
def ClearAllForgetsGroupSize(clear: MethodCall) -> None:
    """Forgets the group size of a partition when everything in it is cleared."""
    clear()
    partition = partition_of(clear)
    if clear.sample_ids is None and not partition._rows:
        partition._group_size = 1


@engine_mutant("CLEAR-01", evidence="UnknownField", may_fail="CLAIM-09 PUT-06")
class CompactionDropsEmptyRows(MemoryEngine):
    """Moves what a clear of most rows of a put leaves, but takes a row without bytes for none.

    A row that was put without elements of a jagged field has that field no more.
    """

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        before = find_rows(self, partition_id, sample_ids)
        blocks = [block for row in before for block, _, _ in row.parts]
        super().clear(partition_id, sample_ids)
        partition = held(self, partition_id)
        for block in {id(block): block for block in blocks}.values():
            put = block.sample_ids
            left = find_rows(self, partition_id, put)
            if len(put) < BLOCK or 2 * len(left) >= len(put):
                continue
            for row in left:
                for of_row, at, names in row.parts:
                    if of_row is block:
                        take_back(partition, row, frozenset(filter(_empty(block, at), names)))


def _empty(block: Block, at: int) -> Callable[[str], bool]:
    """Return a function that says whether a field of a row has no elements."""

    def is_empty(name: str) -> bool:
        offsets = block.payload[name].offsets
        return offsets is not None and bool(offsets[at] == offsets[at + 1])

    return is_empty


@engine_mutant(
    "CLEAR-04", evidence="not to be readable", may_fail="CLEAR-01 CLEAR-03 CLAIM-01 TAG-05"
)
class TagsReviveClearedRows(MemoryEngine):
    """Marks rows as dead when everything is cleared; a put of tags alone takes the mark away.

    A put with fields, a registration and a clear by ids remove dead rows for good.
    """

    _dead = State(dict[str, list[tuple[str, TensorDict]]])

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        if sample_ids is None:
            rows = [row for row in find_rows(self, partition_id) if row.fields]
            read = [self.get(partition_id, [row.sample_id], sorted(row.fields)) for row in rows]
            named = [row.sample_id for row in rows]
            self._dead[partition_id] = list(zip(named, read, strict=True))
        else:
            self._dead.pop(partition_id, None)
        super().clear(partition_id, sample_ids)

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._dead.pop(partition_id, None)

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        dead = self._dead.pop(partition_id, [])
        for sample_id, columns in dead if fields is None else ():
            if sample_id in ids:
                super().put(partition_id, [sample_id], columns, None)


@engine_mutant("CLEAR-03", evidence="not to be readable", may_fail="CLEAR-01 CLAIM-02")
class RegistrationForgetsWhoPut(MemoryEngine):
    """Notes the ids that a process puts for its clears of everything, anew at a registration."""

    _noted = State(dict[str, list[str]])

    def register(self, partition_id: str, tasks: Names, group_size: int) -> None:
        super().register(partition_id, tasks, group_size)
        self._noted[partition_id] = []

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        self._noted.setdefault(partition_id, []).extend(ids)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        own = self._noted.get(partition_id, []) if sample_ids is None else sample_ids
        there = {row.sample_id for row in find_rows(self, partition_id)}
        super().clear(partition_id, [i for i in dict.fromkeys(own) if i in there])


#: Bytes from which on a cell is kept once for all rows that are equal to it.
CELL = 1024


@engine_mutant("CLEAR-01", evidence="UnknownField", may_fail="CLAIM-09 GET-05")
class BlockCountedOncePerPut(MemoryEngine):
    """Keeps equal cells of 1 KiB or more as one block, and counts each block of a put once.

    A clear counts it down once for each of its rows, so the first row of a prompt's group that is
    cleared takes the prompt of the others with it.
    """

    _uses = State(Counter[tuple[str, bytes]])  # of each block of a partition
    _blocks = State(dict[tuple[str, str, str], bytes])  # by partition, row and field

    def put(self, partition_id: str, ids: Ids, fields: MaybeBatch, tags: MaybeTags) -> None:
        super().put(partition_id, ids, fields, tags)
        new: dict[tuple[str, str, str], bytes] = {}
        for name, leaf in fields.items() if fields is not None else ():
            if not isinstance(leaf, Tensor):
                continue
            for sample_id, row in zip(ids, rows_of(leaf), strict=True):
                if row.nbytes >= CELL:
                    new[partition_id, sample_id, name] = dumps(row)[0]
        self._count_down(partition_id, [each for each in new if each in self._blocks])
        self._blocks |= new
        self._uses.update((partition_id, block) for block in {*new.values()})

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        gone = {row.sample_id for row in find_rows(self, partition_id, sample_ids)}
        super().clear(partition_id, sample_ids)
        self._count_down(
            partition_id,
            [each for each in self._blocks if each[0] == partition_id and each[1] in gone],
        )

    def _count_down(self, partition_id: str, cells: list[tuple[str, str, str]]) -> None:
        """Give the blocks of these cells back; drop a block of which no use is left."""
        for cell in cells:
            block = self._blocks.pop(cell)
            self._uses[partition_id, block] -= 1
            if self._uses[partition_id, block] > 0:
                continue
            for other in [
                k for k, v in self._blocks.items() if k[0] == partition_id and v == block
            ]:
                for row in find_rows(self, partition_id, [other[1]]):
                    with self._locked():
                        take_back(held(self, partition_id), row, frozenset({other[2]}))
                del self._blocks[other]
