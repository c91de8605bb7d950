"""CLAIM-01: a row is ready when it has every field that the claim requires.

Planes that look at a row only when something was put to it may count what is missing, not which
fields it is.
"""

from __future__ import annotations

import pytest

from rlconform.certify.assertions.expect import expect_equal
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_ids

IDS = ["u0_g0", "u0_g1", "u1_g0"]


@requirement("CLAIM-01")
@pytest.mark.parametrize("again", ["x", "z", "x twice"])
def test_a_field_that_is_put_again_does_not_count_for_a_missing_one(
    part: PartitionUnderTest, again: str
) -> None:
    part.put_labeled(IDS, "x")
    first = part.claim("train", ["x", "y"], batch_size=len(IDS)).sample_ids
    expect_equal(first, [], "rows without y that a claim for x and y takes")
    for version in range(1, 1 + len(again.split())):
        part.put_labeled(IDS[:2], again[0], version=version)
    early = part.claim("train", ["x", "y"], batch_size=len(IDS)).sample_ids
    expect_equal(early, [], f"rows without y, once {again} was put again:")
    part.put_labeled(IDS[1:], "y")
    expect_ids(part.claim("train", ["x", "y"]), IDS[1:], "rows that have x and y")
