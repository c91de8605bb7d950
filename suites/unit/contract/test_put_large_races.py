"""PUT-22: reads beside large puts return all fields of one put.

A small put takes too short a time for a read to come between its parts.
"""

from __future__ import annotations

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_overwrites import PUTS, LargePut, expect_no_torn_read
from rlconform.certify.scenarios.partition import PartitionUnderTest


@requirement("PUT-22", race=True, scattered=False)
@pytest.mark.parametrize("shape", PUTS.values(), ids=PUTS)
def test_a_read_beside_large_puts_has_the_fields_of_one_put(
    part: PartitionUnderTest, shape: LargePut
) -> None:
    expect_no_torn_read(part, part, shape)
