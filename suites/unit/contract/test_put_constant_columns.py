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


NAN = torch.tensor(torch.nan)
#: What all rows have but one, and what that one has: equal by ``==``, or left out of the least and
#: the greatest value of a column, and not the same.
ALIKE: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
    "negative_zero": (torch.tensor(0.0), torch.tensor(-0.0)),
    "nan_of_another_payload": (
        NAN,
        torch.tensor(0x7FC00001, dtype=torch.int32).view(torch.float32),
    ),
    "nan_among_ones": (torch.tensor(1.0), NAN),
}


@requirement("PUT-01")
@pytest.mark.parametrize(("usual", "other"), ALIKE.values(), ids=ALIKE)
@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "second", "last"])
@pytest.mark.parametrize(
    ("rows", "width"), [*SIZES.values(), (64, 0)], ids=[*SIZES, "one_dimension"]
)
def test_a_row_that_differs_from_equal_ones_in_its_bits_stays(
    new_partition: Callable[..., PartitionUnderTest],
    rows: int,
    width: int,
    which: int,
    usual: torch.Tensor,
    other: torch.Tensor,
) -> None:
    column = usual.repeat(rows, width) if width else usual.repeat(rows)
    column[which] = other
    part, ids = put_alike(new_partition, column)
    part.expect_rows(ids, x=list(column))
