"""PUT-01, PUT-08: columns whose rows are all alike, such as masks of ones and advantages of zero.

Planes that keep such a column as one row must give each reader all rows, in memory of their own.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import (
    expect_column,
    expect_rows_but_first,
    overwrite_first,
)
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.read_ways import Way, either_way

#: Rows, and elements of each. Planes compress columns from some size on.
SIZES = {"bytes": (3, 1), "page": (64, 16), "many_rows": (4096, 1), "mebibyte": (64, 4096)}

sizes = pytest.mark.parametrize(("rows", "width"), SIZES.values(), ids=SIZES)


def put_alike(
    new_partition: Callable[..., PartitionUnderTest], column: torch.Tensor
) -> tuple[PartitionUnderTest, list[str]]:
    """Put the column; return the partition and the ids of its rows."""
    part, ids = new_partition(num_samples=len(column)), [f"r{n}" for n in range(len(column))]
    part.put(ids, x=column)
    return part, ids


@requirement("PUT-08", changes_results=True)
@either_way
@pytest.mark.parametrize("value", [0.0, 1.0])
@sizes
def test_each_row_of_a_constant_column_has_memory_of_its_own(
    new_partition: Callable[..., PartitionUnderTest],
    rows: int,
    width: int,
    value: float,
    read: Way,
) -> None:
    column = torch.full((rows, width), value)
    part, ids = put_alike(new_partition, column)
    batch = read(part, ids)
    overwrite_first(batch, "x")
    expect_rows_but_first(batch, "x", list(column))
    expect_column(read(part, ids), "x", list(column))


#: What a row has that is equal to all others by ``==``, and is not the same.
ALIKE: dict[str, torch.Tensor] = {
    "negative_zero": torch.tensor(-0.0),
    "nan_of_another_payload": torch.tensor(0x7FC00001, dtype=torch.int32).view(torch.float32),
}


@requirement("PUT-01")
@pytest.mark.parametrize("other", ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
@sizes
def test_a_row_that_differs_from_equal_ones_in_its_bits_stays(
    new_partition: Callable[..., PartitionUnderTest],
    rows: int,
    width: int,
    which: int,
    other: torch.Tensor,
) -> None:
    usual = torch.tensor(0.0 if other == 0 else torch.nan)
    column = usual.repeat(rows, width)
    column[which] = other
    part, ids = put_alike(new_partition, column)
    part.expect_rows(ids, x=list(column))
