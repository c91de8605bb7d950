"""CLAIM-05 across processes: a claim for two fields waits, and rows lack one or the other."""

from __future__ import annotations

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.consumers import (
    expect_waiting,
    expect_woken,
    start_blocking_claim,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids
from rlconform.certify.scenarios.two_processes import Actors, each_pair, looker_and_changer

FIELDS = ["x", "y"]


@requirement("CLAIM-05", leans_on=("CLAIM-07",))
@pytest.mark.parametrize("oldest_has", FIELDS)
@each_pair
def test_a_claim_is_woken_by_a_field_that_the_oldest_row_does_not_lack(
    part: PartitionUnderTest, actors: Actors, pair: tuple[int, int], oldest_has: str
) -> None:
    """Planes that watch what the oldest row lacks must also watch what younger ones lack.

    The rollout of the oldest row may have been aborted, and its other field never comes.
    """
    waiter, changer = looker_and_changer(part, actors, pair)
    (oldest_lacks,) = (name for name in FIELDS if name != oldest_has)
    part.put_labeled(["oldest"], oldest_has)
    part.put_labeled(["r0", "r1"], oldest_lacks)
    waiting = start_blocking_claim(waiter, 2, 4 * part.timeouts.settle, fields=FIELDS)
    expect_waiting(waiting, part, "two rows", "an answer with no row ready")
    changer.put_labeled(["r0", "r1"], oldest_has)
    woken = expect_woken(waiting, waiter, changer)
    expect_ids(woken, ["r0", "r1"], "rows with both fields")
