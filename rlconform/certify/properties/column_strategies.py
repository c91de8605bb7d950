"""Strategies for columns of any bits, dtype and shape: dense, jagged, or with unusual strides.

Values are drawn as bits, so that every value is possible: NaNs with payloads, -0.0, subnormals.
Bits shrink to zero, shapes to fewer and smaller dimensions, unusual columns to fewer rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import torch
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from torch import Tensor

from rlconform.certify.scenarios.labeled_rows import jagged

#: Dtypes that every plane must store (PUT-01).
DTYPES = (
    torch.float32, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float64,
)  # fmt: skip
ANY_DTYPE = st.sampled_from(DTYPES)
#: Dtypes that a plane may declare (PUT-02) or should store (PUT-24).
FP8_DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
COMPLEX_DTYPES = (torch.complex64,)
WIDE_UNSIGNED_DTYPES = (torch.uint16, torch.uint32, torch.uint64)

#: Bits of the exponent in the floating dtypes that have infinities and NaNs with payloads.
_EXPONENTS = {
    torch.float16: 0x7C00,
    torch.bfloat16: 0x7F80,
    torch.float32: 0x7F80_0000,
    torch.float64: 0x7FF0_0000_0000_0000,
}


@dataclass(frozen=True)
class DrawnColumn:
    """A column to put, dense (N, ...) or jagged (N, j, ...), and the N rows to read."""

    value: Tensor
    rows: list[Tensor]


#: Makes the strategy of a column with a number of rows.
ColumnsOf = Callable[[int], SearchStrategy[DrawnColumn]]


def odd_bits(dtype: torch.dtype) -> list[int]:
    """Return bits that get lost easily: -0.0, infinities, NaNs with payloads, extreme values."""
    width = 8 * dtype.itemsize
    sign, every = 1 << (width - 1), (1 << width) - 1
    exponent = _EXPONENTS.get(dtype, 0)
    nans = [exponent | 1, sign | exponent | 5] if exponent else []
    return [sign, *nans, exponent, sign | exponent, 1, every, every ^ sign]


@st.composite
def tensors(draw: DrawFn, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """Draw contiguous tensors of any bits; bools are 0 or 1."""
    count = math.prod(shape)
    if count == 0:
        return torch.empty(tuple(shape), dtype=dtype)
    size = dtype.itemsize
    bits = bytearray(draw(st.binary(min_size=count * size, max_size=count * size)))
    if dtype is torch.bool:
        bits = bytearray(bit & 1 for bit in bits)
    else:
        places = st.tuples(st.integers(0, count - 1), st.sampled_from(odd_bits(dtype)))
        for place, pattern in draw(st.lists(places, max_size=3)):
            bits[place * size : (place + 1) * size] = pattern.to_bytes(size, "little")
    return torch.frombuffer(bits, dtype=dtype).reshape(tuple(shape)).clone()


@cache
def row_shapes(
    min_dims: int = 0, max_dims: int = 4, min_side: int = 0, max_side: int = 3
) -> SearchStrategy[tuple[int, ...]]:
    """Draw shapes of one row; by default up to four dimensions of size up to three."""
    sides = st.integers(min_side, max_side)
    return st.lists(sides, min_size=min_dims, max_size=max_dims).map(tuple)


@st.composite
def dense_columns(
    draw: DrawFn,
    n_rows: int,
    dtypes: Sequence[torch.dtype] = DTYPES,
    shapes: SearchStrategy[tuple[int, ...]] | None = None,
) -> DrawnColumn:
    """Draw dense (N, ...) columns of 1 to 5 dimensions, some of size 0 or 1."""
    shape = draw(row_shapes() if shapes is None else shapes)
    value = draw(tensors(draw(st.sampled_from(dtypes)), (n_rows, *shape)))
    return DrawnColumn(value, [row.clone() for row in value])


@st.composite
def jagged_columns(
    draw: DrawFn,
    n_rows: int,
    min_length: int = 0,
    max_length: int = 6,
    trailing: SearchStrategy[tuple[int, ...]] | None = None,
) -> DrawnColumn:
    """Draw jagged (N, j, ...) columns without gaps; rows may be empty or all of one length."""
    dtype = draw(ANY_DTYPE)
    token_shape = draw(st.just(()) if trailing is None else trailing)
    lengths = draw(st.lists(st.integers(min_length, max_length), min_size=n_rows, max_size=n_rows))
    tokens = draw(tensors(dtype, (sum(lengths), *token_shape)))
    rows = [row.clone() for row in torch.split(tokens, lengths)]
    return DrawnColumn(jagged(rows), rows)


@cache
def token_shapes() -> SearchStrategy[tuple[int, ...]]:
    """Draw shapes of one token, with which a jagged column has up to five dimensions."""
    return row_shapes(0, 3, min_side=1)


@cache
def columns(n_rows: int) -> SearchStrategy[DrawnColumn]:
    """Draw any column that every plane must store; jagged columns have no gaps."""
    return st.one_of(
        dense_columns(n_rows),
        jagged_columns(n_rows, trailing=token_shapes()),
        unusual_columns(n_rows),
    )


# -- unusual strides and gaps --------------------------------------------------------------------

Shape = tuple[int, ...]
#: Shape of a base tensor, and how to view it as (N, *row shape), or as tokens (T, *token shape).
View = tuple[Shape, Callable[[Tensor], Tensor]]


#: Names of views that dense columns can have, and those that tokens of any shape can have.
VIEWS = (
    "strided", "sliced", "expanded rows", "expanded tokens", "expanded scalar", "transposed",
    "whole",
)  # fmt: skip
TOKEN_VIEWS = ("whole", "strided", "sliced", "expanded rows", "transposed")
_VIEW, _TOKEN_VIEW = st.sampled_from(VIEWS), st.sampled_from(TOKEN_VIEWS)


def _view(name: str, n: int, shape: Shape) -> View:
    match name:
        case "strided":
            *others, last = n, *shape
            return (*others, 2 * last), lambda base: base[..., ::2]
        case "sliced":
            within = (slice(1, -1),) * (1 + len(shape))
            return tuple(side + 2 for side in (n, *shape)), lambda base: base[within]
        case "expanded rows":
            return shape, lambda base: base.expand(n, *shape)
        case "expanded tokens":
            return (n, *shape[:-1], 1), lambda base: base.expand(n, *shape)
        case "expanded scalar":
            return (), lambda base: base.expand(n)
        case "transposed":
            return (*shape[::-1], n), lambda base: base.permute(*reversed(range(base.dim())))
    return (n, *shape), lambda base: base


@st.composite
def unusual_columns(draw: DrawFn, n_rows: int) -> DrawnColumn:
    """Draw strided, sliced, expanded and transposed dense columns; some require grad."""
    dtype = draw(ANY_DTYPE)
    name = draw(_VIEW)
    base_shape, view = _view(name, n_rows, draw(row_shapes(1, 3, min_side=1)))
    base = draw(tensors(dtype, base_shape))
    rows = [row.clone(memory_format=torch.contiguous_format) for row in view(base)]
    if dtype.is_floating_point and draw(st.booleans()):
        base.requires_grad_()
    return DrawnColumn(view(base), rows)


#: Number of tokens between two rows that belong to neither row, as in a narrowed batch.
_UNUSED = st.just(0) | st.integers(0, 2)


@st.composite
def unusual_jagged_columns(draw: DrawFn, n_rows: int) -> DrawnColumn:
    """Draw jagged columns with unusual strides or with gaps between rows; some require grad."""
    dtype = draw(ANY_DTYPE)
    gaps = draw(st.booleans())
    span = st.tuples(st.integers(0, 4), _UNUSED if gaps else st.just(0))
    spans = draw(st.lists(span, min_size=n_rows, max_size=n_rows))
    offsets = list(accumulate((own + unused for own, unused in spans), initial=0))
    lengths = torch.tensor([own for own, _ in spans])
    name = draw(_TOKEN_VIEW)
    base_shape, view = _view(name, offsets[-1], draw(token_shapes()))
    base = draw(tensors(dtype, base_shape))
    rows = [
        view(base)[start : start + own].clone(memory_format=torch.contiguous_format)
        for start, (own, _) in zip(offsets, spans, strict=False)
    ]
    grad = draw(st.sampled_from(["", "leaf", "result"])) if dtype.is_floating_point else ""
    base.requires_grad_(grad == "result")
    value = torch.nested.nested_tensor_from_jagged(
        view(base), torch.tensor(offsets), lengths if gaps else None
    )
    return DrawnColumn(value.requires_grad_() if grad == "leaf" else value, rows)
