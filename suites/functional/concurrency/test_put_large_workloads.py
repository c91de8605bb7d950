"""PUT-22: reads beside another process's large puts return all fields of one put.

A small put takes too short a time for a read to come between its parts.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.large_overwrites import PUTS, LargePut, expect_no_torn_read
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.contract import DataPlaneClient


@requirement("PUT-22")
@pytest.mark.parametrize("shape", PUTS.values(), ids=PUTS)
@pytest.mark.parametrize("writes", ["owner", "attached"])
def test_a_read_beside_another_processs_large_puts_has_the_fields_of_one_put(
    part: PartitionUnderTest,
    actors: Callable[[int], list[DataPlaneClient]],
    writes: str,
    shape: LargePut,
) -> None:
    (attached,) = (part.via(actor) for actor in actors(1))
    views = (part, attached) if writes == "owner" else (attached, part)
    expect_no_torn_read(*views, shape)
