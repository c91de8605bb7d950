"""STAT across processes: all processes get the same status."""

from __future__ import annotations

from collections.abc import Callable

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import DataPlaneClient

Actors = Callable[[int], list[DataPlaneClient]]
IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("STAT-02")
def test_every_process_gets_the_same_status(part: PartitionUnderTest, actors: Actors) -> None:
    views = [part, *(part.via(actor) for actor in actors(2))]
    part.put_labeled(IDS)
    expect_equal([v.consumed() for v in views], [False] * 3, "status with rows unclaimed")
    views[1].claim("train")
    expect_equal([v.consumed() for v in views], [True] * 3, "status with all claimed")
    views[2].put_labeled(["late"])
    expect_equal([v.consumed() for v in views], [False] * 3, "status after one more row")
