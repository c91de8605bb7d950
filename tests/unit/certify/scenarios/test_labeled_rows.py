"""Labelled rows name their partition, id and field; random rows cover odd bit patterns."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlconform.certify.assertions.expect import row_difference
from rlconform.certify.scenarios.labeled_rows import (
    labeled_column,
    labeled_row,
    labeled_rows,
    random_rows,
)
from rlconform.wire import rows_of

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint64,
    torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64,
]  # fmt: skip

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]

names = st.text(st.characters(exclude_characters="|", exclude_categories=["Cs"]), min_size=1)


@given(names, names, names, st.integers(0, 10**6))
def test_a_row_spells_its_label(partition: str, sample: str, field: str, version: int) -> None:
    row = labeled_row(partition, sample, field, version)
    assert (row.dtype, row.dim()) == (torch.uint8, 1)
    assert bytes(row.tolist()).decode() == f"row:{partition}|{sample}|{field}|v{version}"


def test_rows_of_different_owners_differ() -> None:
    owners = list(product(("p", "q"), ("a", "b"), ("x", "y"), (0, 1)))
    rows = [labeled_row(*owner) for owner in owners]
    for i, j in product(range(len(rows)), repeat=2):
        assert (row_difference(rows[i], rows[j]) is None) == (i == j)


@pytest.mark.parametrize("width", [0, 5, 64])
def test_a_row_is_padded_and_never_cut(width: int) -> None:
    text = "row:p|a|x|v0"
    row = bytes(labeled_row("p", "a", "x", width=width).tolist()).decode()
    assert len(row) == max(width, len(text))
    assert row.rstrip(".") == text


@pytest.mark.parametrize(
    ("ids", "width", "nested"),
    [(["a", "b"], 0, False), (["a", "bcd"], 0, True), (["a", "bcd"], 64, False)],
)
def test_a_column_holds_the_rows(ids: list[str], width: int, nested: bool) -> None:
    column = labeled_column("p", ids, "x", 3, width)
    assert column.is_nested == nested
    rows = labeled_rows("p", ids, "x", 3, width)
    assert len(rows) == len(ids)
    for got, want in zip(rows_of(column), rows, strict=True):
        assert row_difference(got, want) is None


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_rows_have_the_dtype_and_shapes_asked_for(dtype: torch.dtype) -> None:
    shapes = [(), (5,), (0,), (2, 0, 3), (3, 4)]
    rows = random_rows(dtype, shapes)
    assert [(row.dtype, tuple(row.shape)) for row in rows] == [(dtype, shape) for shape in shapes]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_random_rows_follow_from_their_seed(dtype: torch.dtype) -> None:
    first, again, other = (random_rows(dtype, [(32,)] * 2, seed) for seed in (1, 1, 2))
    assert [row_difference(*pair) for pair in zip(first, again, strict=True)] == [None, None]
    assert row_difference(first[0], other[0]) is not None
    assert row_difference(first[0], first[1]) is not None


def test_bools_are_0_or_1() -> None:
    (row,) = random_rows(torch.bool, [(256,)])
    assert set(row.view(torch.uint8).tolist()) == {0, 1}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_floats_hold_the_values_that_get_lost(dtype: torch.dtype) -> None:
    """A check of a few short rows must find a plane that normalises NaNs or signed zeros."""
    values = torch.cat(random_rows(dtype, [(5,)] * 3))
    assert values.isnan().any()
    assert values.isinf().any()
    assert (values.signbit() & (values == 0)).any()
    plain_nan = torch.tensor([float("nan")], dtype=dtype)
    assert any(row_difference(nan, plain_nan[0]) for nan in values[values.isnan()])
