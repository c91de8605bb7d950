"""PUT-01, PUT-05: columns come back exactly whose values a plane may store in fewer bytes.

Planes pack integers that fit a smaller type, and store runs of equal values as their lengths.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.assertions.expect import expect, leaf_of
from rlconform.certify.assertions.raw_bytes import as_bytes
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.wire import stack_or_nest

IDS = ["u0_g0", "u0_g1", "u1_g0"]

#: The least and the greatest value of a column: -100 marks tokens that have no label.
RANGES = [
    (0, 255), (-1, 255), (-100, 127), (-128, 128), (-100, 40_000), (0, 65_535), (-1, 65_536),
    (-100, 2**31 - 1), (-(2**31), 2**31), (-100, 2**32 - 1), (-1, 2**32), (-(2**63), 2**63 - 1),
]  # fmt: skip

#: Lengths of the rows: more elements than a plane leaves as they are.
LENGTHS = {"dense": [700] * 3, "jagged": [700, 1200, 301]}


def columns_of(low: float, high: float, count: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return columns of small values with one that has the outer values, and one where all do."""
    small = torch.arange(count).remainder(100).to(dtype)
    within = small.clone()
    within[count // 3], within[-count // 3] = low, high
    each = small.clone()
    each[::2], each[1::2] = low, high
    return [within, each]


@requirement("PUT-05", leans_on=("PUT-04",), scattered=False)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("span", RANGES, ids=str)
def test_integers_that_nearly_fit_a_smaller_type_come_back(
    part: PartitionUnderTest, span: tuple[int, int], lengths: list[int]
) -> None:
    for column in columns_of(*span, sum(lengths), torch.int64):
        rows = list(column.split(lengths))
        part.put(IDS, x=stack_or_nest(rows))
        part.expect_rows(IDS, x=rows)


#: Floats that a smaller type doesn't hold: rounded, beyond its greatest, below its least.
FLOATS = {"rounded": (0.1, 2049.0), "large": (-1e5, 1e30), "small": (1e-8, -1e-40)}


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("span", FLOATS.values(), ids=FLOATS)
def test_floats_that_nearly_fit_a_smaller_type_come_back(
    part: PartitionUnderTest, span: tuple[float, float]
) -> None:
    for column in columns_of(*span, 2100, torch.float32):
        rows = list(column.split(700))
        part.put(IDS, x=torch.stack(rows))
        part.expect_rows(IDS, x=rows)


#: Elements of a row, so that a run takes more than 16 bits in one row, or in two.
LONG, HALF = 70_000, 40_000


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("width", [LONG, HALF], ids=["in_a_row", "across_rows"])
def test_long_runs_of_equal_values_come_back(
    part: PartitionUnderTest, dtype: torch.dtype, width: int
) -> None:
    column = torch.zeros(3, width, dtype=dtype)
    column[1] = 1
    column[2, -1] = 1
    masks = torch.ones(3, width, dtype=dtype)
    masks[2, :100] = 0
    for rows in (column, masks, column):
        part.put(IDS, x=rows)
        part.expect_rows(IDS, x=list(rows))


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_values_that_cancel_come_back(part: PartitionUnderTest, dtype: torch.dtype) -> None:
    """Advantages of a group sum to zero; so does any page of them, and an exclusive or of pairs."""
    rows = torch.tensor([1, -1]).repeat(3, HALF // 2).to(dtype)
    rows[1] = -rows[1]
    rows[2] = torch.tensor([2, 2, -2, -2]).repeat(HALF // 4).to(dtype)
    part.put(IDS, x=rows)
    part.expect_rows(IDS, x=list(rows))


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_rare_values_among_zeros_come_back(part: PartitionUnderTest, dtype: torch.dtype) -> None:
    """Planes that store only what is not zero compare with ``!= 0``, for which -0.0 is zero."""
    zeros = torch.zeros(3, 2048, dtype=dtype)
    zeros[0, ::97] = -0.0
    zeros[1, 5:1900:331] = torch.tensor([-0.0, 1.0, -0.0, 1e-38, float("nan"), -1.0], dtype=dtype)
    for column in (zeros, -zeros, zeros.flip(0)):
        part.put(IDS, x=column)
        part.expect_rows(IDS, x=list(column))


#: Rows of a large step, and the values of a late row that a smaller type does not hold, by dtype.
MANY = 1500
LATE_VALUES: dict[torch.dtype, list[float]] = {
    torch.int16: [-1, 128, -129, 256],
    torch.int32: [-1, 256, 2**15, -(2**15) - 1, 2**16],
    torch.int64: [-1, 256, 2**15, 2**31, -(2**31) - 1, 2**32],
    torch.float32: [0.1, 65_536.0, 1e-8, 2049.0],
    torch.float64: [0.1, 1e300, 2**24 + 1],
}


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("dtype", LATE_VALUES, ids=str)
def test_a_late_row_that_does_not_fit_a_smaller_type_comes_back(
    new_partition: Callable[..., PartitionUnderTest], dtype: torch.dtype
) -> None:
    """Planes that choose a type by the first rows of a column meet such a value too late."""
    columns = {}
    for n, value in enumerate(LATE_VALUES[dtype]):
        columns[f"f{n}"] = torch.arange(MANY).remainder(100).to(dtype)
        columns[f"f{n}"][MANY - 2 - n] = value
    part = new_partition(fields=list(columns), num_samples=MANY)
    ids = [f"r{n}" for n in range(MANY)]
    part.put(ids, **columns)
    batch = part.get(ids, *columns)
    for n, (name, column) in enumerate(columns.items()):
        got, late = leaf_of(batch, name), MANY - 2 - n
        same = got.dtype is dtype and torch.equal(as_bytes(got), as_bytes(column))
        expect(
            same,
            f"{MANY} rows of {name!r} of {dtype}, {column[late].item()} in row {late}",
            f"{got.dtype}, {got[late].item()} in that row",
        )


#: Elements of a column, of which only the last ones do not fit: more than a plane may look at.
ELEMENTS = (5_000, 70_000, 1_200_000)


@requirement("PUT-01", scattered=False)
@pytest.mark.parametrize("count", ELEMENTS)
@pytest.mark.parametrize("dtype", LATE_VALUES, ids=str)
def test_a_late_element_that_does_not_fit_a_smaller_type_comes_back(
    part: PartitionUnderTest, dtype: torch.dtype, count: int
) -> None:
    """Planes that choose a type by the first elements of a column meet such a value too late."""
    for value in LATE_VALUES[dtype][-2:]:
        column = torch.arange(count).remainder(100).to(dtype)
        column[-2:] = value
        for lengths in ([count // 3] * 3, [count // 2, count // 2 - 5, 5]):
            rows = list(column[-sum(lengths) :].split(lengths))
            part.put(IDS, x=stack_or_nest(rows))
            part.expect_rows(IDS, x=rows)
