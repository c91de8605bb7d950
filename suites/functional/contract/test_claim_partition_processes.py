"""CLAIM-05 across processes whose claims wait in different partitions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_timeout,
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.odd_ids import COLLISIONS
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import Actors

#: Hashes by which two names with the same beginning collide if their ends do.
HASHES = ("crc32", "adler32", "java", "djb2")
#: Seconds that a claim of the second process waits in vain.
IN_VAIN_S = 0.05


@requirement("CLAIM-05", leans_on=("CLAIM-06", "REG-04"))
@pytest.mark.parametrize("stays", [False, True], ids=["gives_up", "stays"])
def test_claims_that_wait_in_partitions_of_equal_hashes_are_each_woken(
    new_partition: Callable[..., PartitionUnderTest], actors: Actors, stays: bool
) -> None:
    """Planes that keep waiters by a hash of the partition may let one take another's place."""
    stem = new_partition(register=False).id
    pairs = [[new_partition(exact=stem + end) for end in COLLISIONS[name]] for name in HASHES]
    first, second, writer = actors(3)
    waiting = []
    for (here, there), view in product(pairs, (first, second)):
        place = (here if view is first else there).via(view)
        if view is second and not stays:
            expect_timeout(place, 1, timeout_s=IN_VAIN_S)
        else:
            wait_s = 4 * place.timeouts.settle
            waiting.append((place, start_blocking_claim(place, 1, timeout_s=wait_s)))
            expect_waiting(waiting[-1][1], place, "a row", "an answer with no row ready")
    for place, claim in waiting:
        put_by = place.via(writer)
        put_by.put_labeled(["r0"])
        expect_ids(expect_woken(claim, place, put_by), ["r0"], "rows put during the wait")
