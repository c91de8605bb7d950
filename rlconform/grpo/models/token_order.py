"""``TokenOrder``: in which order a model gets the tokens of a micro-batch.

    padded   row 0  a b c .        packed   a b c|d e|f g h i     positions 0 1 2 0 1 0 1 2 3
             row 1  d e . .
             row 2  f g h i

In a padded layout the slots are those of the matrix, row by row; in a packed layout padding belongs
to the row before it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

RowLayout = Literal["padded", "packed"]


class TokenOrder(NamedTuple):
    """The K slots of a micro-batch in the order in which the model gets them."""

    row: Tensor  # (K,) the row of each slot
    position: Tensor  # (K,) the position within the row
    valid: Tensor  # (K,) False for padding

    @classmethod
    def of(cls, counts: Tensor, width: int, layout: RowLayout, pad_multiple: int = 1) -> TokenOrder:
        """Order rows of ``counts`` (B,) tokens, in a matrix of ``width`` columns or packed.

        In a packed layout each row's length is rounded up to a multiple of ``pad_multiple``.
        """
        slots = -(-counts // pad_multiple) * pad_multiple
        if layout == "padded":
            slots = torch.full_like(counts, width)
        row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), slots)
        position = torch.arange(len(row), device=counts.device) - (slots.cumsum(0) - slots)[row]
        return cls(row, position, position < counts[row])

    def arrange(self, column: Tensor, padding: float) -> Tensor:
        """Return the values (K, ...) of a per-token column (B, T, ...), with ``padding``."""
        values = column[self.row, self.position.clamp(max=column.shape[1] - 1)]
        valid = self.valid.view(-1, *[1] * (values.dim() - 1))
        return torch.where(valid, values, torch.as_tensor(padding, dtype=values.dtype))

    def of_row(self, row: int) -> Tensor:
        """Return the slots of a row's tokens in order, as a mask (K,)."""
        return self.valid & (self.row == row)
