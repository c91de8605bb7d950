"""An assertion that a plane's nested column works in torch like a nested column that torch built.

A column can hold the right rows and still be useless to a trainer: torch may pad it to the sum
of its row lengths, or refuse it. Comparing rows does not show that; using the column does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.expect import (
    ContractViolation,
    expect,
    leaf_of,
    rows_in,
    show_row,
)
from rlconform.certify.assertions.raw_bytes import raw_bytes
from rlconform.certify.recording.shorten import error_text
from rlconform.wire.leaves import is_jagged


class _Operation(NamedTuple):
    """An operation that a trainer performs on a column."""

    source: str  # as Python
    run: Callable[[Any], Tensor | list[Tensor]]  # returns a nested or dense tensor, or dense ones
    why: str  # trainers perform it


def _widened(column: Tensor) -> Tensor:
    """Return the column in a wider dtype, which holds all values of most dtypes exactly."""
    if column.is_complex():
        return column.to(torch.complex128)
    return column.to(torch.float32 if column.dtype is torch.float64 else torch.float64)


def _gradient(column: Tensor) -> Tensor:
    """Return the gradient of a factor of the column."""
    differentiable = column.is_floating_point() or column.is_complex()
    dtype = column.dtype if differentiable else torch.float32
    factor = torch.ones((), dtype=dtype, device=column.device, requires_grad=True)
    product: Any = column * factor
    (gradient,) = torch.autograd.grad(product.values().sum().abs(), factor)
    return gradient


#: Padding comes first: other operations make torch cache the row lengths, after which a broken
#: column may pad correctly.
_OPERATIONS = (
    _Operation(
        "torch.nested.to_padded_tensor(column, padding=1)",
        lambda column: torch.nested.to_padded_tensor(column, padding=1),
        "a trainer makes its rectangular batch this way, as NeMo-RL's materialize does",
    ),
    _Operation(
        "pickle.loads(pickle.dumps(column))",
        lambda column: pickle.loads(pickle.dumps(column)),
        "batches travel between workers by pickle",
    ),
    _Operation(
        "column.unbind()",
        lambda column: list(column.unbind()),
        "a trainer takes a batch apart into rows",
    ),
    _Operation("column * 2", lambda column: column * 2, "a trainer computes with a column"),
    _Operation(
        "column + column", lambda column: column + column, "a trainer computes with a column"
    ),
    _Operation(
        "the gradient of factor in (column * factor).values().sum().abs()",
        _gradient,
        "a loss weighs what a model computes with a column, and goes backwards",
    ),
    _Operation("column.to(dtype)", _widened, "a trainer converts a column to its own precision"),
    _Operation(
        "torch.cat([column.values(), column.values()])",
        lambda column: torch.cat([column.values(), column.values()]),
        "a trainer joins the tokens of several batches",
    ),
)


def expect_whole_column(batch: TensorDictBase, field: str) -> None:
    """Expect ``batch[field]`` to be dense, or nested and as usable as a column that torch built.

    Each operation must give the same result on this column as on a column that
    ``torch.nested.nested_tensor`` builds of the same rows. Operations that torch refuses on that
    column (padding fp8, say) are skipped. ``expect_column`` checks that the rows are right.
    """
    rows = rows_in(batch, field)
    column: Any = leaf_of(batch, field)
    if not column.is_nested or not rows:  # torch builds no nested tensor without rows
        return
    if column.layout is torch.jagged:
        _expect_structure(column, field)
    content = b"".join(raw_bytes(row) for row in rows)
    shapes = tuple(tuple(row.shape) for row in rows)
    results = _results_of_torch(column.layout, rows[0].device, rows[0].dtype, shapes, content)
    for operation, wanted in zip(_OPERATIONS, results, strict=True):
        if wanted is not None:
            _expect_same(operation, column, field, wanted)


@lru_cache(maxsize=16)  # a check reads the same rows in several ways
def _results_of_torch(
    layout: torch.layout,
    device: torch.device,
    dtype: torch.dtype,
    shapes: tuple[tuple[int, ...], ...],
    content: bytes,
) -> list[list[Tensor] | None]:
    """Return the operations' results on a column that torch builds of rows with this content.

    None if torch has no kernel for this dtype, or can't unpickle it.
    """
    sizes = [torch.Size(shape).numel() for shape in shapes]
    values = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0)
    values = values.to(torch.uint8).view(dtype)
    flat = torch.split(values, sizes)
    rows = [row.reshape(shape).to(device) for row, shape in zip(flat, shapes, strict=True)]
    column = torch.nested.nested_tensor(rows, layout=layout)
    results: list[list[Tensor] | None] = []
    for operation in _OPERATIONS:
        try:
            results.append(_carry_out(operation, column))
        except (RuntimeError, AttributeError):
            results.append(None)
    return results


def _expect_structure(column: Any, field: str) -> None:
    """Expect a jagged column's offsets to cover all values, and its ``lengths()`` to be None."""
    expect(
        is_jagged(column),
        f"{field!r} to be ragged in its second dimension, (N, j, ...)",
        f"shape {tuple(column.shape)}",
    )
    lengths = column.lengths()
    expect(
        lengths is None,
        f"lengths() of {field!r} to be None: with offsets they allow holes between rows, and "
        "torch.nested.to_padded_tensor refuses such a column",
        lengths,
    )
    offsets, tokens = column.offsets().tolist(), column.values().shape[0]
    expect(
        offsets == sorted(offsets) and (offsets[0], offsets[-1]) == (0, tokens),
        f"offsets() of {field!r} to rise from 0 to {tokens}, the number of its values(): torch "
        "refuses to split a column into rows where values are left over",
        offsets,
    )


def _expect_same(operation: _Operation, column: Tensor, field: str, wanted: list[Tensor]) -> None:
    what = f"{operation.source} of the column {field!r}"
    try:
        got = _carry_out(operation, column)
    except Exception as error:  # a plane's column may be of any class and raise anything
        due = f"{what} to work ({operation.why})"
        raise ContractViolation(due, error_text(error)) from error
    if difference := _difference(got, wanted):
        raise ContractViolation(f"{what} to have {difference[0]} ({operation.why})", difference[1])


def _carry_out(operation: _Operation, column: Tensor) -> list[Tensor]:
    """Return the operation's result as dense tensors; a nested result is split into its rows."""
    result = operation.run(column)
    if isinstance(result, list):
        return result
    return list(result.unbind()) if result.is_nested else [result]


def _difference(got: list[Tensor], wanted: list[Tensor]) -> tuple[str, str] | None:
    """Return (expected, got) texts of how two results differ; ``None`` if they are equal."""
    if len(got) != len(wanted):
        return f"{len(wanted)} rows", f"{len(got)} rows"
    for left, right in zip(got, wanted, strict=True):
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            expected, found = (f"shape {tuple(one.shape)} and {one.dtype}" for one in (right, left))
            return expected, found
        if not _equal(left, right):
            return f"the values {show_row(right)}", show_row(left)
    return None


def _equal(got: Tensor, wanted: Tensor) -> bool:
    """Whether the values are equal. Two NaNs always are: arithmetic guarantees no NaN payload."""
    if raw_bytes(got) == raw_bytes(wanted):
        return True
    if not (got.is_floating_point() or got.is_complex()):
        return False
    return bool(((got == wanted) | (got.isnan() & wanted.isnan())).all())
