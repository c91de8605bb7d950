"""Conversions of one field: padded or per-row tensors to jagged ones, and slices of responses."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlconform.wire.leaves import classify_leaf, is_jagged, jagged_parts, rows_of
from rlconform.wire.ragged_rows import Lengths, RaggedRows


def pack_per_token_field(values: Tensor, lengths: Lengths | RaggedRows) -> Tensor:
    """Copy a per-token field to a jagged (N, j, ...) tensor; row i has ``lengths[i]`` tokens.

    A dense field may be wider than the longest row, as after sequence parallelism: each row is cut
    to its length. A jagged field must have exactly these row lengths. ``ValueError`` if a field has
    fewer columns than the longest row, another number of rows, or other row lengths.
    """
    rows = lengths if isinstance(lengths, RaggedRows) else RaggedRows(lengths, values.device)
    if not is_jagged(values):
        return rows.nest(rows.take_padded(values))
    tokens, held = jagged_parts(values)
    if not torch.equal(held.lengths, rows.lengths):
        raise ValueError(
            f"a jagged per-token field must have the batch's row lengths: "
            f"{held.count} rows, {held.total} tokens for {rows.count} rows, {rows.total} tokens"
        )
    return rows.nest(tokens.clone())


def stack_or_nest(rows: Sequence[Tensor]) -> Tensor:
    """Combine N per-row tensors: dense (N, ...) if all shapes are equal, else jagged.

    Scalars give (N,); rows that all have length zero give (N, 0, ...). ``ValueError`` for no rows,
    different dtypes (there is no promotion), or rows that differ in more than their first
    dimension.
    """
    if not rows:
        raise ValueError("no rows: neither dtype nor row shape is known")
    if len({row.dtype for row in rows}) > 1:
        raise ValueError(f"rows differ in dtype: {sorted({str(row.dtype) for row in rows})}")
    shapes = {row.shape for row in rows}
    if len(shapes) == 1:
        return torch.stack(list(rows)).detach()
    if torch.Size() in shapes or len({shape[1:] for shape in shapes}) > 1:
        raise ValueError(
            f"rows differ in more than their first dimension: {sorted(map(tuple, shapes))}"
        )
    lengths = [row.shape[0] for row in rows]
    return RaggedRows(lengths, rows[0].device).nest(torch.cat(list(rows)).detach())


def as_read(leaf: object) -> object:
    """Convert a nested tensor of torch's older, strided layout, which a plane may return.

    It becomes jagged, or dense if all its rows have the same shape. Any other leaf is returned as
    it is. ``ValueError`` if the rows differ in more than their first dimension.
    """
    if isinstance(leaf, Tensor) and leaf.is_nested and leaf.layout is torch.strided:
        return stack_or_nest(rows_of(leaf))
    return leaf


def response_from_nested(nested: Tensor, response_lengths: Lengths) -> Tensor:
    """Copy a model's outputs for the response tokens to a jagged (N, response, ...) tensor.

    Row i of ``nested`` has the outputs at L tokens, prompt and response; ``response_lengths`` are
    (N,) integers R, where 0 gives an empty row. The output at token i predicts token i + 1, so the
    outputs for the last R tokens are at [L - R - 1, L - 1), one position to the left.

    Raises:
        TypeError: ``nested`` is not jagged.
        ValueError: The number of rows differs, or no token precedes a response (R > L - 1).
    """
    if classify_leaf(nested) != "jagged":
        raise TypeError("response_from_nested takes a jagged tensor, got a dense one")
    values, whole = jagged_parts(nested)
    response = RaggedRows(response_lengths, values.device)
    if response.count != whole.count:
        raise ValueError(f"{response.count} response lengths for {whole.count} rows")
    too_long = (response.lengths > 0) & (response.lengths > whole.lengths - 1)
    if bool(too_long.any()):
        row = int(too_long.nonzero()[0])
        raise ValueError(
            f"row {row}: {int(response.lengths[row])} response tokens in a row of "
            f"{int(whole.lengths[row])}; expected a token before the first of them"
        )
    return response.nest(response.take(values, whole.offsets[1:] - response.lengths - 1))
