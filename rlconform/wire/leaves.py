"""Leaves of a batch: their kind, and their rows in any layout."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from rlconform.wire.object_columns import is_object_column
from rlconform.wire.ragged_rows import RaggedRows, owned

LeafKind = Literal["dense", "jagged", "object"]


def classify_leaf(leaf: object) -> LeafKind:
    """Return the kind of a leaf: ``dense`` (N, ...), ``jagged`` (N, j, ...) or ``object``.

    ``TypeError`` for any other leaf, so that none is dropped: a nested TensorDict, a sparse or
    quantized tensor, a nested tensor that is strided, or ragged in a later dimension.
    """
    if is_object_column(leaf):
        return "object"
    if isinstance(leaf, Tensor):
        if is_jagged(leaf):
            return "jagged"
        if leaf.layout is torch.strided and not leaf.is_nested and not leaf.is_quantized:
            return "dense"
        nested = "nested " if leaf.is_nested else ""  # a nested strided tensor has no shape to show
        raise TypeError(
            f"a leaf must be dense, or torch.jagged with its second dimension ragged, got a "
            f"{nested}{leaf.dtype} tensor of {leaf.dim()} dimensions and layout {leaf.layout}"
        )
    raise TypeError(f"a leaf must be a tensor or an object column, got {type(leaf).__name__}")


def is_jagged(leaf: Tensor) -> bool:
    """Whether ``leaf`` is a ``torch.jagged`` tensor whose second dimension is the ragged one.

    It reads torch's attribute: ``layout`` and ``shape`` of a jagged tensor pass through Python code
    of torch, which takes a hundred times as long, and all columns of all calls are asked.
    """
    return type(leaf) is not Tensor and getattr(leaf, "_ragged_idx", None) == 1


def jagged_buffers(leaf: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the values, offsets and lengths that a jagged leaf holds, without grad or copies.

    ``lengths`` is None unless the rows have gaps. The attributes are read for the same reason as in
    ``is_jagged``: ``values()`` passes through torch's dispatcher.
    """
    return leaf._values.detach(), leaf._offsets, leaf._lengths


def jagged_parts(leaf: Tensor) -> tuple[Tensor, RaggedRows]:
    """Return a jagged leaf's concatenated tokens (copied if its rows have gaps) and row lengths."""
    values, offsets, lengths = jagged_buffers(leaf)
    rows = RaggedRows(offsets.diff() if lengths is None else lengths)
    if lengths is None and rows.total == values.shape[0]:
        return values, rows
    return rows.take(values, offsets[:-1]), rows


def rows_of(leaf: Tensor) -> list[Tensor]:
    """Return the N rows of a dense or nested leaf, so that leaves of any layout can be compared.

    Rows are views of the leaf, except for a jagged leaf with gaps between its rows. ``TypeError``
    for a leaf that is not a tensor, is sparse, or has no dimensions.
    """
    if isinstance(leaf, Tensor) and is_jagged(leaf):
        values, rows = jagged_parts(leaf)
        return list(torch.split(values, rows.lengths.tolist()))
    if not isinstance(leaf, Tensor) or leaf.layout not in {torch.strided, torch.jagged}:
        raise TypeError(f"no rows in {type(leaf).__name__}")
    if leaf.dim() == 0:
        raise TypeError("a tensor without dimensions has no rows")
    return list(leaf.detach().unbind())


def same_rows(left: Tensor, right: Tensor) -> bool:
    """Whether two leaves have the same rows: dtype, row shapes and bytes, in any layout."""
    left_rows, right_rows = rows_of(left), rows_of(right)
    return len(left_rows) == len(right_rows) and all(map(_same_bits, left_rows, right_rows))


def _same_bits(left: Tensor, right: Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(*(owned(row).view(-1).view(torch.uint8).cpu() for row in (left, right)))
