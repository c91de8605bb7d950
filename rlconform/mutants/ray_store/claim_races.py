"""Controllers whose claims, clears and counters take two steps instead of one atomic step.

The correct controller never waits in the middle of a call, so each call is atomic. These
controllers wait for the duration of a second message, and calls of other processes can run in
between.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.ray_store.controller import Controller, StoredPut, answers
from rlconform.mutants.call import State
from rlconform.mutants.ray_store.mutant import controller_mutant
from rlconform.mutants.ray_store.race_helpers import second_message
from rlconform.mutants.types import Ids, Names, Wait


@controller_mutant(
    "CLAIM-02", evidence="duplicated", may_fail="CLAIM-10 CLEAR-07 CLAIM-12 LOAD-01 FAULT-04"
)
class ClaimChosenThenMarked(Controller):
    """Chooses the rows of a claim, then marks them as claimed in a second step.

    Two consumers get the same rows.
    """

    _chosen = State(dict[tuple[str, str, tuple[str, ...]], Any])

    async def claim(
        self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait
    ) -> Any:
        key = (partition_id, task, tuple(names))
        if key in self._chosen and wait_s is None:  # not marked yet: choose the same rows
            sample_ids, tags = self._chosen[key]
            return sample_ids[:rows], tags[:rows]
        claimed = await super().claim(partition_id, task, names, rows, wait_s)
        if wait_s is None and isinstance(claimed, tuple) and claimed[0]:
            self._chosen[key] = claimed
            await second_message()
            del self._chosen[key]
        return claimed


@controller_mutant("CLAIM-10", evidence="null-id", may_fail="CLEAR-07")
class ClaimIdsLookedUpLater(Controller):
    """Claims internal indexes, then looks up their ids in a second step.

    A row that is cleared in between has no id any more: in 4,419 claims, 656 ids were null.
    """

    async def claim(self, partition_id: str, *args: Any) -> Any:
        claimed = await super().claim(partition_id, *args)
        if not isinstance(claimed, tuple) or not claimed[0]:
            return claimed
        await second_message()
        known = self._index.partition(partition_id)
        return [None if known.count_new([i]) else i for i in claimed[0]], claimed[1]


@controller_mutant("CLEAR-07", evidence="lost")
class ClaimDroppedWhenRowCleared(Controller):
    """Marks rows as claimed, then drops the whole claim if one of the rows was cleared.

    The other rows stay marked as claimed, and no consumer gets them (TQ-09).
    """

    async def claim(self, partition_id: str, *args: Any) -> Any:
        claimed = await super().claim(partition_id, *args)
        if not isinstance(claimed, tuple) or not claimed[0]:
            return claimed
        await second_message()
        gone = self._index.partition(partition_id).count_new(claimed[0])
        return ([], []) if gone else claimed


def _cursors(partition_id: str, tasks: Names) -> list[str]:
    return [f"{partition_id}/{task}" for task in tasks]


#: Messages between the two steps of a counter. On a busy machine the calls of two processes seldom
#: fall into the time of a single one.
MESSAGES = 5


@controller_mutant("STAT-01", evidence="-status")
class StatusCountersUpdatedInTwoSteps(Controller):
    """Reads a counter of put or claimed rows, and writes it back some messages later.

    When two calls update a counter at the same time, one update is lost and the status is wrong
    (TQ-08).
    """

    _counting = State(set[str])
    _missed = State(Counter[str])

    async def commit(self, put: StoredPut, parcel: ColumnBlock, reference: list[Any]) -> Any:
        partition = self._index._partitions.get(put.partition_id)
        new = partition.count_new(put.sample_ids) if partition and parcel else 0
        done = await super().commit(put, parcel, reference)
        await self._count(put.partition_id, new)
        return done

    async def claim(self, partition_id: str, task: str, *args: Any) -> Any:
        claimed = await super().claim(partition_id, task, *args)
        if isinstance(claimed, tuple):
            await self._count(f"{partition_id}/{task}", len(claimed[0]))
        return claimed

    @answers
    async def all_claimed(self, partition_id: str, tasks: Names) -> bool:
        if not any(self._missed[name] for name in (partition_id, *_cursors(partition_id, tasks))):
            return self._index.all_claimed(partition_id, tasks)
        partition = self._index.partition(partition_id)
        produced = partition._produced - self._missed[partition_id]
        claimed = [
            partition._claimed[task] - self._missed[cursor]
            for task, cursor in zip(tasks, _cursors(partition_id, tasks), strict=True)
        ]
        return all(count == produced for count in claimed)

    async def clear(self, partition_id: str, sample_ids: Ids | None, writer: str) -> Any:
        for name in [n for n in self._missed if n.partition("/")[0] == partition_id]:
            del self._missed[name]  # a clear resets the lost updates
        return await super().clear(partition_id, sample_ids, writer)

    async def _count(self, name: str, rows: int) -> None:
        if name in self._counting:
            self._missed[name] += rows
        elif rows:
            self._counting.add(name)
            for _ in range(MESSAGES):
                await second_message()
            self._counting.discard(name)
