"""PUT: a column of any dtype, shape, layout and memory is read bit for bit as it was put."""

from __future__ import annotations

from functools import partial

import torch

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect_column,
    expect_equal,
    expect_rows_but_first,
    overwrite_first,
)
from rlconform.certify.assertions.jagged import expect_whole_column
from rlconform.certify.plugin.markers import requirement
from rlconform.certify.properties.column_strategies import (
    COMPLEX_DTYPES,
    FP8_DTYPES,
    WIDE_UNSIGNED_DTYPES,
    dense_columns,
    jagged_columns,
    row_shapes,
    token_shapes,
    unusual_columns,
    unusual_jagged_columns,
)
from rlconform.certify.properties.runner import for_all
from rlconform.certify.properties.strategies import (
    Batch,
    Write,
    batches,
    overwrites,
    writes_of_any_dtypes,
)
from rlconform.certify.scenarios.partition import PartitionUnderTest, expect_unreadable

IDS = ["r0", "r1", "r2"]


def expect_round_trip(part: PartitionUnderTest, batch: Batch) -> None:
    part.put(batch.ids, **batch.values)
    part.expect_rows(batch.ids, **batch.rows)


@requirement("PUT-01")
@for_all(batch=batches())
def test_any_columns_come_back_from_one_put(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)


FP8_COLUMNS = partial(dense_columns, dtypes=FP8_DTYPES)

COMPLEX_COLUMNS = partial(dense_columns, dtypes=COMPLEX_DTYPES)

WIDE_UNSIGNED_COLUMNS = partial(dense_columns, dtypes=WIDE_UNSIGNED_DTYPES)


@requirement("PUT-02", capability="dtype_fp8")
@for_all(batch=batches(FP8_COLUMNS))
def test_any_fp8_values_come_back(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)


@requirement("PUT-02", capability="dtype_complex")
@for_all(batch=batches(COMPLEX_COLUMNS))
def test_any_complex_values_come_back(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)


FLAT_OR_ONE_WIDE = partial(dense_columns, shapes=row_shapes(max_dims=1, min_side=1, max_side=1))


@requirement("PUT-03")
@for_all(batch=batches(FLAT_OR_ONE_WIDE))
def test_any_one_dimensional_columns_are_distinct_from_width_one(
    part: PartitionUnderTest, batch: Batch
) -> None:
    expect_round_trip(part, batch)


@requirement("PUT-04")
@for_all(batch=batches(dense_columns))
def test_dense_columns_of_any_shape_come_back(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)


@requirement("PUT-05")
@for_all(batch=batches(partial(jagged_columns, min_length=1, trailing=token_shapes())))
def test_jagged_columns_of_any_lengths_come_back(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)


@requirement("PUT-06")
@for_all(batch=batches(partial(jagged_columns, max_length=2)))
def test_zero_length_rows_in_any_position_come_back(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)


@requirement("PUT-07")
@for_all(batch=batches(partial(jagged_columns, trailing=row_shapes(1, 2, min_side=1))))
def test_jagged_columns_with_trailing_dimensions_come_back(
    part: PartitionUnderTest, batch: Batch
) -> None:
    expect_round_trip(part, batch)


@requirement("PUT-29", leans_on=("PUT-05", "PUT-06", "PUT-07"))
@for_all(batch=batches(partial(jagged_columns, trailing=row_shapes(0, 2, min_side=1))))
def test_any_jagged_column_works_in_torch(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)
    got = part.get(batch.ids, *batch.rows)
    for name in batch.rows:
        expect_whole_column(got, name)


@requirement("PUT-08", changes_results=True)
@for_all(batch=batches(unusual_columns))
def test_any_columns_of_unusual_layout_come_back_plain(
    part: PartitionUnderTest, batch: Batch
) -> None:
    expect_plain_round_trip(part, batch)


@requirement("PUT-08", changes_results=True)
@for_all(batch=batches(unusual_jagged_columns))
def test_any_jagged_columns_of_unusual_layout_come_back_plain(
    part: PartitionUnderTest, batch: Batch
) -> None:
    expect_plain_round_trip(part, batch)


def expect_plain_round_trip(part: PartitionUnderTest, batch: Batch) -> None:
    """Expect the tensors that are read not to require grad, and their rows to share no memory."""
    part.put(batch.ids, **batch.values)
    result = part.get(batch.ids, *batch.columns)
    for name, rows in batch.rows.items():
        expect_column(result, name, rows)
        grad = bool(result.get(name).requires_grad)
        expect_equal(grad, False, f"requires_grad of {name!r} as it was read")
    for name, rows in batch.rows.items():
        overwrite_first(result, name)
        expect_rows_but_first(result, name, rows)


@requirement("PUT-13")
@for_all(writes=overwrites(IDS))
def test_the_newest_of_any_values_is_read(part: PartitionUnderTest, writes: list[Write]) -> None:
    newest = {}
    for write in writes:
        part.put(list(write.rows), x=write.value)
        newest |= write.rows
        part.expect_rows(IDS, x=[newest[i] for i in IDS])


@requirement("PUT-23")
@for_all(writes=writes_of_any_dtypes(IDS))
def test_rows_of_any_dtypes_are_never_cast(part: PartitionUnderTest, writes: list[Write]) -> None:
    """A plane may refuse a put that gives a field a second dtype; such a put stores nothing."""
    stored: dict[str, torch.Tensor] = {}
    for write in writes:
        dtypes = {row.dtype for row in (*stored.values(), *write.rows.values())}
        try:
            part.put(list(write.rows), x=write.value)
        except ContractViolation:
            raise
        except Exception:
            if len(dtypes) == 1:
                raise
        else:
            stored |= write.rows
        for sample_id in IDS:
            if sample_id in stored:
                part.expect_rows([sample_id], x=[stored[sample_id]])
            else:
                expect_unreadable(lambda i=sample_id: part.get([i], "x"), sample_id, "x")
        expect_read_together(part, stored)


def expect_read_together(part: PartitionUnderTest, stored: dict[str, torch.Tensor]) -> None:
    """Expect a read of all rows to return each as it was put; a plane may refuse mixed dtypes."""
    try:
        result = part.get(list(stored), "x")
    except ContractViolation:
        raise
    except Exception:
        if len({row.dtype for row in stored.values()}) < 2:
            raise
    else:
        expect_column(result, "x", list(stored.values()))


@requirement("PUT-24")
@for_all(batch=batches(WIDE_UNSIGNED_COLUMNS))
def test_any_wide_unsigned_values_come_back(part: PartitionUnderTest, batch: Batch) -> None:
    expect_round_trip(part, batch)
