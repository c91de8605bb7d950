"""PUT-13: a put of values that are equal to the stored ones by ``==``, and are not the same.

Planes leave out writes that change nothing. What changes nothing is a question of bits, dtype and
shape, which ``==`` and ``torch.equal`` do not ask.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.labeled_rows import jagged
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.certify.scenarios.read_ways import Way, either_way

IDS = ["u0_g0", "u0_g1", "u1_g0"]


def zeros(dtype: torch.dtype, *shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return three rows of zeros, and of negative ones."""
    rows = torch.zeros(len(IDS), *shape, dtype=dtype)
    return rows, -rows


def one_zero() -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of numbers of which one is zero, and then negative zero."""
    rows = torch.arange(12.0).view(len(IDS), 4)
    other = rows.clone()
    other[0, 0] = -0.0
    return rows, other


def not_numbers() -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows that are not a number, with two payloads."""
    bits = torch.full((len(IDS), 2), 0x7FC00000, dtype=torch.int32)
    return bits.view(torch.float32), (bits + 1).view(torch.float32)


#: What is put first and then.
EQUAL: dict[str, tuple[torch.Tensor, torch.Tensor]] = {
    "zeros": zeros(torch.float32),
    "wide_zeros": zeros(torch.float32, 64),
    "large_zeros": zeros(torch.float32, 1 << 17),
    "double_zeros": zeros(torch.float64, 3),
    "half_zeros": zeros(torch.bfloat16, 3),
    "one_zero": one_zero(),
    "not_numbers": not_numbers(),
    "a_dimension_more": (torch.ones(len(IDS)), torch.ones(len(IDS), 1)),
    "a_dimension_fewer": (torch.ones(len(IDS), 1), torch.ones(len(IDS))),
    "another_dtype": (torch.ones(len(IDS), 2), torch.ones(len(IDS), 2, dtype=torch.int32)),
    "bools": (torch.ones(len(IDS), 2, dtype=torch.uint8), torch.ones(len(IDS), 2).bool()),
}


def check_overwrite(
    part: PartitionUnderTest, read: Way, first: torch.Tensor, then: torch.Tensor
) -> None:
    """Put one column and then the other, and the first again: each is read as it was put."""
    for column in (first, then, first):
        part.put(IDS, x=column)
        expect_column(read(part, IDS), "x", list(column.unbind()))


@requirement("PUT-13", leans_on=("PUT-01",))
@either_way
@pytest.mark.parametrize(("first", "then"), EQUAL.values(), ids=EQUAL)
def test_a_value_that_equals_the_stored_one_replaces_it(
    part: PartitionUnderTest, read: Way, first: torch.Tensor, then: torch.Tensor
) -> None:
    check_overwrite(part, read, first, then)


@requirement("PUT-13", leans_on=("PUT-01", "PUT-05"))
@either_way
def test_jagged_rows_that_equal_the_stored_ones_replace_them(
    part: PartitionUnderTest, read: Way
) -> None:
    rows = [torch.zeros(n) for n in (3, 0, 7)]
    check_overwrite(part, read, jagged(rows), jagged([-row for row in rows]))


@requirement("PUT-13", leans_on=("PUT-01",))
@pytest.mark.parametrize("which", range(len(IDS)))
def test_one_row_that_equals_the_stored_one_replaces_it(
    new_partition: Callable[..., PartitionUnderTest], which: int
) -> None:
    part, (rows, others) = new_partition(), zeros(torch.float32, 3)
    part.put(IDS, x=rows)
    part.put([IDS[which]], x=others[:1])
    due = [others[n] if n == which else rows[n] for n in range(len(IDS))]
    part.expect_rows(IDS, x=due)
