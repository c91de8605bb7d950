"""Checks that a nested column which a plane returned works in torch as one that torch built.

A column can hold the right rows and still be of no use to a trainer: torch pads it to the sum of
its row lengths, or its kernels refuse it. Comparing row by row doesn't show that; using it does.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from rlconform.certify.assertions.values import (
    ContractViolation,
    as_bytes,
    expect,
    leaf_of,
    rows_in,
    show_row,
)
from rlconform.certify.recording.text import shorten
from rlconform.wire.leaves import is_jagged


@dataclass(frozen=True)
class _Operation:
    """One use of a column.

    Attributes:
        source: The operation as Python source.
        run: The operation; it gives a tensor, nested or dense, or a list of dense ones.
        why: Who does this to a column.
    """

    source: str
    run: Callable[[Any], Tensor | list[Tensor]]
    why: str


def _widened(column: Tensor) -> Tensor:
    """The column in another dtype, one that every value of most dtypes fits."""
    if column.is_complex():
        return column.to(torch.complex128)
    return column.to(torch.float32 if column.dtype is torch.float64 else torch.float64)


#: Padding comes first: torch keeps what some of the others learn of the row lengths, and a column
#: that was used once may then pad right.
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
    _Operation("column.to(dtype)", _widened, "a trainer converts a column to its own precision"),
    _Operation(
        "torch.cat([column.values(), column.values()])",
        lambda column: torch.cat([column.values(), column.values()]),
        "a trainer joins the tokens of several batches",
    ),
)


def expect_whole_column(batch: TensorDictBase, field: str) -> None:
    """``batch[field]`` is dense, or nested and as good as a column that torch built of its rows.

    torch sets the standard: each operation that it carries out on a column which
    ``torch.nested.nested_tensor`` built of the same rows must give the same on this one. What torch
    refuses of its own column (to pad fp8, say) isn't asked. Whether the rows are the right ones is
    for ``expect_column`` to judge.
    """
    rows = rows_in(batch, field)
    column: Any = leaf_of(batch, field)
    if not column.is_nested or not rows:  # torch itself builds no nested tensor of no rows
        return
    if column.layout is torch.jagged:
        _expect_structure(column, field)
    standard = torch.nested.nested_tensor(rows, layout=column.layout)
    for operation in _OPERATIONS:
        try:
            wanted = _carry_out(operation, standard)
        except (RuntimeError, AttributeError):
            continue  # torch has no kernel for it, or can't unpickle this dtype: nobody can
        _expect_same(operation, column, field, wanted)


def _expect_structure(column: Any, field: str) -> None:
    """The offsets cover the values from the first to the last, and no lengths lie beside them."""
    expect(
        is_jagged(column),
        f"{field!r} to be ragged in its second dimension, (N, j, ...)",
        f"shape {tuple(column.shape)}",
    )
    lengths = column.lengths()
    expect(
        lengths is None,
        f"lengths() of {field!r} to be None: beside offsets they allow holes between rows, and "
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
    said = f"{operation.source} of the column {field!r}"
    try:
        got = _carry_out(operation, column)
    except Exception as error:  # a plane's column may be of any class and raise anything
        raise ContractViolation(
            f"{said} to work ({operation.why})", f"{type(error).__name__}: {shorten(str(error))}"
        ) from error
    if difference := _difference(got, wanted):
        raise ContractViolation(f"{said} to have {difference[0]} ({operation.why})", difference[1])


def _carry_out(operation: _Operation, column: Tensor) -> list[Tensor]:
    """The result as dense tensors: one for each row of a nested one."""
    result = operation.run(column)
    if isinstance(result, list):
        return result
    return list(result.unbind()) if result.is_nested else [result]


def _difference(got: list[Tensor], wanted: list[Tensor]) -> tuple[str, str] | None:
    """How two results differ, as (expected, came); ``None`` when they are equal."""
    if len(got) != len(wanted):
        return f"{len(wanted)} rows", f"{len(got)} rows"
    for left, right in zip(got, wanted, strict=True):
        if (left.dtype, left.shape) != (right.dtype, right.shape):
            expected, came = (f"shape {tuple(one.shape)} and {one.dtype}" for one in (right, left))
            return expected, came
        if not _equal(left, right):
            return f"the values {show_row(right)}", show_row(left)
    return None


def _equal(got: Tensor, wanted: Tensor) -> bool:
    """Whether the values are the same; any two NaNs are, as arithmetic promises no payload."""
    if torch.equal(as_bytes(got), as_bytes(wanted)):
        return True
    if not (got.is_floating_point() or got.is_complex()):
        return False
    return bool(((got == wanted) | (got.isnan() & wanted.isnan())).all())
