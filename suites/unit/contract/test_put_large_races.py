"""PUT-22: reads beside puts of large columns return all fields of one put.

A read of a small column takes too short a time for a put to come between it and another.
"""

from __future__ import annotations

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_overwrites import expect_no_torn_read
from rlconform.certify.scenarios.partition import PartitionUnderTest


@requirement("PUT-22", race=True, scattered=False)
def test_a_read_beside_puts_of_large_columns_has_the_fields_of_one_put(
    part: PartitionUnderTest,
) -> None:
    expect_no_torn_read(part, part)
