"""ASYNC across processes at the same time: puts, write-backs and clears of different groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.async_groups import (
    GROUP_SIZE,
    AsyncGroups,
    clear_groups,
    expect_gone,
    expect_whole,
    overlap,
    put_group,
    row_ids,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]

#: Chunks of groups that the driver trains on; rounds of groups that become stale together.
CHUNKS, ROUNDS, STALE = 8, 10, 4


@requirement("ASYNC-03")
def test_groups_are_whole_until_cleared_and_then_gone(
    part: PartitionUnderTest, actors: Actors
) -> None:
    *rollouts, rank = actors(3)
    AsyncGroups(part, rollouts, rank).run(CHUNKS)


@requirement("ASYNC-04")
def test_a_write_back_during_the_clear_brings_nothing_back(
    part: PartitionUnderTest, actors: Actors
) -> None:
    rank, other = (part.via(actor) for actor in actors(2))
    put_group(other, "stays", 0)
    for n in part.rounds(ROUNDS):
        stale = [f"stale{n}-{k}" for k in range(STALE)]
        for group in stale:
            put_group(other, group, n)
        order = stale if n % 4 < 2 else stale[::-1]  # with the writes, or towards them
        overlap(other if n % 2 else part, partial(write_late, rank), stale, order)
        for view, rows in ((part, GROUP_SIZE), (rank, 1)):
            for group in stale:
                expect_gone(view, group, "x", rows=rows)
        clear_groups(part, stale)  # writes may have come after the first clears
        for group in stale:
            expect_gone(part, group, "x", "y", rows=1)
    expect_whole(part, ["stays"], "x")


def write_late(rank: PartitionUnderTest, group: str) -> None:
    """Write a column back; the plane may refuse with any error, as the group is being cleared."""
    try:
        rank.put_labeled(row_ids(group), "y")
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - see above
        return
