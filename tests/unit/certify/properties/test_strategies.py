"""Strategies draw the wanted values and shrink them to simple ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st

from rlconform.certify.assertions.expect import row_difference
from rlconform.certify.properties.column_strategies import (
    DTYPES,
    ColumnsOf,
    DrawnColumn,
    columns,
    dense_columns,
    jagged_columns,
    tensors,
    token_shapes,
    unusual_columns,
    unusual_jagged_columns,
)
from rlconform.certify.properties.padded_strategies import PaddedBatch, padded_batches
from rlconform.certify.properties.runner import SETTINGS
from rlconform.certify.properties.strategies import (
    Batch,
    Write,
    batches,
    mixed_batches,
    object_overwrites,
    objects,
    overwrites,
    sample_ids,
    tags,
    writes_of_any_dtypes,
)
from rlconform.wire import rows_of

SEARCH = settings(SETTINGS, max_examples=1000)


def comes_up(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
    """The smallest wanted value; raises an error if none is drawn."""
    return find(strategy, wanted, settings=SEARCH, random=Random(0))


# -- drawn values and their shrunk forms ----------------------------------------------------------


def has_bits(dtype: torch.dtype, bits: int) -> Callable[[torch.Tensor], bool]:
    size = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    return lambda value: bool((value.view(size) == bits).any())


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [(torch.float32, -(2**31)), (torch.float32, 0x7F80_0001), (torch.bfloat16, 0x7F81),
     (torch.float64, 1), (torch.int64, -(2**63)), (torch.float16, -(2**15))],
)  # fmt: skip
def test_bits_that_get_lost_easily_come_up(dtype: torch.dtype, bits: int) -> None:
    smallest = comes_up(tensors(dtype, (2, 2)), has_bits(dtype, bits))
    plain = smallest.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize])
    assert sorted(plain.flatten().tolist(), key=abs)[:3] == [0, 0, 0]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda c: c.value.dim() == 1,
        lambda c: c.value.dim() == 5,
        lambda c: c.value.dim() > 2 and 0 in c.value.shape[1:],
        lambda c: c.value.shape[1:] == (1,),
        *(lambda c, dtype=dtype: c.value.dtype is dtype for dtype in DTYPES),
    ],
)
def test_every_kind_of_dense_column_comes_up(wanted: Callable[[DrawnColumn], bool]) -> None:
    comes_up(dense_columns(2), wanted)


@pytest.mark.parametrize(
    "lengths", [[0, 0], [0, 3], [3, 0], [2, 2]], ids=["none", "first", "last", "equal"]
)
def test_every_kind_of_jagged_column_comes_up(lengths: list[int]) -> None:
    column = comes_up(jagged_columns(2), lambda c: [len(row) for row in c.rows] == lengths)
    assert column.value.is_nested
    assert not any(row.any() for row in column.rows)


JAGGED: dict[str, ColumnsOf] = {
    "plain": partial(jagged_columns, trailing=token_shapes()),
    "unusual": unusual_jagged_columns,
    "any": columns,
}


@pytest.mark.parametrize("dims", [2, 3, 4, 5])
@pytest.mark.parametrize("of", JAGGED.values(), ids=JAGGED)
def test_jagged_columns_have_two_to_five_dimensions(of: ColumnsOf, dims: int) -> None:
    column = comes_up(of(2), lambda c: c.value.is_nested and c.value.dim() == dims)
    assert all(row.dim() == dims - 1 for row in column.rows)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda value: value.lengths() is not None,
        lambda value: value.lengths() is None,
        lambda value: value.lengths() is not None and bool((value.lengths() == 0).any()),
        lambda value: value.values().dim() > 1 and value.values().stride()[-1] == 2,
        lambda value: value.values().dim() == 1 and value.values().stride() == (2,),
        lambda value: value.values().storage_offset() > 0,
        lambda value: 0 in value.values().stride() and value.values().numel() > 1,
        lambda value: value.values().dim() > 1 and 1 == value.values().stride()[0] < len(value),
        lambda value: value.requires_grad and value.is_leaf,
        lambda value: value.requires_grad and not value.is_leaf,
    ],
    ids=["gaps", "no_gaps", "gaps_and_empty_row", "strided", "every_second_token", "sliced",
         "expanded", "transposed", "grad_leaf", "grad_result"],
)  # fmt: skip
def test_every_unusual_jagged_input_comes_up(wanted: Callable[[Any], bool]) -> None:
    comes_up(unusual_jagged_columns(2), lambda column: wanted(column.value))


def test_gaps_shrink_to_one_token_that_is_not_used() -> None:
    def has_gap(column: DrawnColumn) -> bool:
        return len(column.value.values()) > sum(len(row) for row in column.rows)

    smallest = comes_up(unusual_jagged_columns(2), has_gap)
    assert len(smallest.value.values()) == 1
    assert [len(row) for row in smallest.rows] == [0, 0]


@pytest.mark.parametrize(
    "wanted",
    [
        lambda value: 0 in value.stride(),
        lambda value: value.storage_offset() > 0,
        lambda value: value.dim() > 1 and value.stride()[0] == 1 and value.stride()[-1] > 1,
        lambda value: value.requires_grad and value.is_leaf,
        lambda value: value.requires_grad and not value.is_leaf,
        lambda value: value.dim() > 1 and value.stride()[-1] == 2,
    ],
    ids=["expanded", "sliced", "transposed", "grad_leaf", "grad_result", "strided"],
)
def test_every_unusual_input_comes_up(wanted: Callable[[torch.Tensor], bool]) -> None:
    comes_up(unusual_columns(2), lambda column: wanted(column.value))


@settings(SETTINGS, max_examples=120)
@given(column=columns(3) | unusual_jagged_columns(3))
def test_a_columns_rows_are_those_of_its_value(column: DrawnColumn) -> None:
    for got, want in zip(rows_of(column.value.detach()), column.rows, strict=True):
        assert row_difference(got, want) is None


def test_ids_shrink_to_short_ones() -> None:
    assert comes_up(sample_ids(2), lambda ids: any("/" in i for i in ids)) in (
        ["/", "a"],
        ["a", "/"],
    )
    assert max(map(len, comes_up(sample_ids(), lambda ids: len(ids[0]) > 200))) == 201


@settings(SETTINGS, max_examples=60)
@given(ids=sample_ids())
def test_ids_are_unlike_and_of_at_most_a_kibibyte(ids: list[str]) -> None:
    assert len(set(ids)) == len(ids)
    assert all(0 < len(i.encode()) <= 1024 for i in ids)


@pytest.mark.parametrize(
    "wanted",
    [
        lambda value: value is None,
        lambda value: value == [None],
        lambda value: isinstance(value, dict) and any(type(v) is list for v in value.values()),
    ],
    ids=["none", "list", "nested"],
)
def test_every_kind_of_object_comes_up(wanted: Callable[[Any], bool]) -> None:
    comes_up(objects(), wanted)


@pytest.mark.parametrize("kind", [int, float, str, bool, type(None)])
def test_every_kind_of_tag_comes_up(kind: type) -> None:
    row = comes_up(tags(), lambda row: any(type(value) is kind for value in row.values()))
    assert len(row) == 1


def test_overwrites_change_the_dtype_only_of_all_rows() -> None:
    def changes(writes: list[Write]) -> bool:
        return len({row.dtype for write in writes for row in write.rows.values()}) > 1

    first, *_, last = comes_up(overwrites(["a", "b"]), changes)
    assert set(first.rows) == set(last.rows) == {"a", "b"}
    shorter = comes_up(overwrites(["a", "b"]), lambda writes: len(writes[1].rows) == 1)
    assert len(shorter) == 2


def test_writes_of_any_dtypes_reach_rows_old_and_new() -> None:
    def mixes(writes: list[Write]) -> bool:
        first, second = writes[:2]
        unlike = {row.dtype for write in (first, second) for row in write.rows.values()}
        return len(unlike) == 2 and first.rows.keys() ^ second.rows.keys() == {"a", "b"}

    writes = comes_up(writes_of_any_dtypes(["a", "b"]), mixes)
    assert [len(write.rows) for write in writes] == [1, 1]
    comes_up(
        writes_of_any_dtypes(["a", "b"]),
        lambda writes: [len(write.rows) for write in writes[:2]] == [2, 1],
    )


def test_objects_come_up_beside_tensors_of_any_kind() -> None:
    batch, values = comes_up(
        mixed_batches(),
        lambda mixed: (
            any(c.value.is_nested for c in mixed[0].columns.values()) and None in mixed[1]
        ),
    )
    assert len(batch.ids) == len(values) == 1


def test_objects_are_overwritten_row_by_row_and_all_at_once() -> None:
    for size in (1, 2):
        first, newer = comes_up(
            object_overwrites(["a", "b"]),
            lambda writes, size=size: len(writes[1]) == size and None not in writes[1].values(),
        )
        assert first == {"a": None, "b": None}
        assert len(newer) == size


@settings(SETTINGS, max_examples=60)
@given(batch=padded_batches())
def test_padding_is_all_that_a_reader_sees_changed(batch: PaddedBatch) -> None:
    lengths = batch.columns["input_lengths"].tolist()
    for name in batch.token_fields:
        put, read = batch.columns[name], batch.expected[name]
        assert read.shape[1] == (max(lengths) if batch.width is None else batch.width)
        for row, length in enumerate(lengths):
            assert row_difference(read[row, :length], put[row, :length]) is None
            assert (read[row, length:] == batch.pad_values[name]).all()


def test_a_batch_shrinks_to_one_row_of_one_column() -> None:
    batch = comes_up(batches(), lambda _batch: True)
    assert isinstance(batch, Batch)
    assert (batch.ids, list(batch.columns)) == (["r0"], ["x"])
