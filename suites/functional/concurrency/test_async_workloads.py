"""ASYNC across processes at the same time: puts, write-backs and clears of different groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from rlconform.certify.assertions.expect import ContractViolation
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.async_groups import (
    AsyncGroups,
    expect_gone,
    expect_whole,
    put_group,
    row_ids,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.threads import run_concurrently
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]

#: Chunks of groups that the driver trains on, and groups that are cleared during a write-back.
CHUNKS, CLEARED = 12, 24


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
    for n in part.rounds(CLEARED):
        group, clearing = f"stale{n}", other if n % 2 else part
        ids = row_ids(group)
        put_group(other, group, n)
        calls = [partial(write_late, rank, ids), partial(clearing.clear, ids)]
        run_concurrently(calls, part.timeouts.check / 2, "rank and clear")
        for view in (part, rank):
            expect_gone(view, group, "x")
        part.clear(ids)  # the write may have come after the first clear
        expect_gone(part, group, "x", "y")
    expect_whole(part, ["stays"], "x")


def write_late(part: PartitionUnderTest, ids: list[str]) -> None:
    """Write a column back; the plane may refuse with any error, as the rows are being cleared."""
    try:
        part.put_labeled(ids, "y")
    except ContractViolation:
        raise
    except Exception:  # noqa: BLE001 - see above
        return
