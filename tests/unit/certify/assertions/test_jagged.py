"""The check of jagged columns accepts those that torch builds and finds each kind of defect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.certify.assertions.expect import ContractViolation, expect_column
from rlconform.certify.assertions.jagged import _OPERATIONS, _carry_out, expect_whole_column
from rlconform.certify.scenarios.labeled_rows import random_rows

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
]  # fmt: skip
#: Dtypes whose columns torch cannot pad, pickle or add, even those it built.
RARE_DTYPES = [torch.uint16, torch.uint64, torch.float8_e4m3fn, torch.complex64]

VALUES = torch.arange(9.0)
ROWS = [VALUES[:3], VALUES[3:4], VALUES[4:]]
OFFSETS = torch.tensor([0, 3, 4, 9])


def jagged(rows: list[Tensor]) -> Tensor:
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def batch_of(column: Tensor) -> TensorDict:
    return TensorDict({"x": column}, batch_size=[column.size(0)])


# -- correct columns -------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*DTYPES, *RARE_DTYPES], ids=str)
@pytest.mark.parametrize("lengths", [(3, 1, 5), (4, 4, 4), (0, 2, 0), (0, 0), (7,), (0,)], ids=str)
@pytest.mark.parametrize("trailing", [(), (2, 3), (0,)], ids=str)
def test_what_torch_builds_is_whole(
    dtype: torch.dtype, lengths: tuple[int, ...], trailing: tuple[int, ...]
) -> None:
    rows = random_rows(dtype, [(n, *trailing) for n in lengths])
    expect_whole_column(batch_of(jagged(rows)), "x")


@pytest.mark.parametrize(
    "column",
    [
        torch.zeros(3, 4),
        torch.zeros(2, 0, 3),
        torch.nested.nested_tensor(ROWS, layout=torch.strided),
        torch.nested.nested_tensor_from_jagged(VALUES[:0], OFFSETS[:1]),
        torch.nested.nested_tensor_from_jagged(VALUES, OFFSETS.int(), min_seqlen=1, max_seqlen=5),
        torch.nested.nested_tensor_from_jagged(
            torch.arange(36.0).view(4, 9).t(), OFFSETS, min_seqlen=1, max_seqlen=5
        ),
    ],
    ids=["dense", "dense of nothing", "older layout", "no rows", "int32 offsets", "transposed"],
)
def test_other_right_columns_pass(column: Tensor) -> None:
    expect_whole_column(batch_of(column), "x")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_operation_is_left_out_of_a_common_dtype(dtype: torch.dtype) -> None:
    column = jagged(random_rows(dtype, [(3,), (0,), (5,)]))
    for operation in _OPERATIONS:
        assert _carry_out(operation, column)


# -- defective columns -----------------------------------------------------------------------------


def without_longest() -> Tensor:
    return torch.nested.nested_tensor_from_jagged(VALUES, OFFSETS)


def with_longest(longest: int) -> Tensor:
    return torch.nested.nested_tensor_from_jagged(VALUES, OFFSETS, min_seqlen=1, max_seqlen=longest)


def with_lengths() -> Tensor:
    lengths = torch.tensor([3, 1, 5])
    return torch.nested.nested_tensor_from_jagged(VALUES, OFFSETS, lengths)


def with_holes() -> Tensor:
    return torch.nested.narrow(
        torch.stack([VALUES, VALUES[3:].repeat(2)[:9], VALUES[4:].repeat(2)[:9]]),
        *(1, 0, torch.tensor([3, 1, 5])),
        layout=torch.jagged,
    )


def with_values_left_over(before: int, after: int) -> Tensor:
    values = torch.cat([torch.zeros(before), VALUES, torch.zeros(after)])
    return torch.nested.nested_tensor_from_jagged(
        values, OFFSETS + before, min_seqlen=1, max_seqlen=5
    )


def with_a_lock() -> Tensor:
    column = jagged(ROWS)
    column.lease = threading.Lock()  # type: ignore[attr-defined]
    return column


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (without_longest, r"to_padded_tensor.*shape \(3, 5\).*got shape \(3, 9\)"),
        (lambda: with_longest(9), r"to_padded_tensor.*shape \(3, 5\).*got shape \(3, 9\)"),
        (lambda: with_longest(3), r"to_padded_tensor.*shape \(3, 5\).*got shape \(3, 3\)"),
        (with_lengths, r"lengths\(\) of 'x' to be None.*got tensor\(\[3, 1, 5\]\)"),
        (with_holes, r"lengths\(\) of 'x' to be None"),
        (lambda: with_values_left_over(2, 0), r"offsets\(\).*from 0 to 11.*\[2, 5, 6, 11\]"),
        (lambda: with_values_left_over(0, 2), r"offsets\(\).*from 0 to 11.*\[0, 3, 4, 9\]"),
        (with_a_lock, r"pickle.*to work.*got TypeError: cannot pickle"),
        (lambda: jagged([torch.ones(n, 3) for n in (1, 2)]).transpose(1, 2), "second dimension"),
    ],
    ids=[
        "no longest row", "longest too long", "longest too short", "lengths", "holes",
        "values before", "values after", "no pickle", "ragged later",
    ],
)  # fmt: skip
def test_a_column_that_is_less_is_found(make: Callable[[], Tensor], says: str) -> None:
    with pytest.raises(ContractViolation, match=says):
        expect_whole_column(batch_of(make()), "x")


@pytest.mark.parametrize(
    "make",
    [without_longest, with_lengths, with_holes, lambda: with_values_left_over(2, 2), with_a_lock],
    ids=["no longest row", "lengths", "holes", "values left over", "no pickle"],
)
def test_its_rows_alone_do_not_show_it(make: Callable[[], Tensor]) -> None:
    expect_column(batch_of(make()), "x", ROWS)


class Refusing(Tensor):
    """A tensor that cannot be converted, because its values stay in a store."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.to:
            raise OSError("the store is gone")
        return super().__torch_function__(func, types, args, kwargs or {})


def test_any_error_of_an_operation_counts_against_the_column() -> None:
    column = torch.nested.nested_tensor(ROWS, layout=torch.strided).as_subclass(Refusing)
    with pytest.raises(ContractViolation, match=r"to\(dtype\).*OSError: the store is gone"):
        expect_whole_column(batch_of(column), "x")
