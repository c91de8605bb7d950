"""Pairs of processes: one looks at rows that the other changes, and then looks again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]

#: Who looks and who changes: 0 is the owner, the others are attached. The pids of the first and
#: third have the same low bits.
PAIRS = {
    "attached_looks_owner_changes": (1, 0),
    "owner_looks_attached_changes": (0, 1),
    "attached_looks_attached_changes": (1, 3),
}

#: Runs a check once for each pair.
each_pair = pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)


def looker_and_changer(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int]
) -> tuple[PartitionUnderTest, PartitionUnderTest]:
    """Return the partition as the looking and as the changing process of a pair see it."""
    views = [part, *(part.via(actor) for actor in actors(max(pair)))]
    return views[pair[0]], views[pair[1]]
