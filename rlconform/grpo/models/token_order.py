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
    def of(
        cls,
        counts: Tensor,
        width: int,
        layout: RowLayout,
        pad_multiple: int = 1,
        slots_in_all: int | None = None,
    ) -> TokenOrder:
        """Order rows of ``counts`` (B,) tokens, in a matrix of ``width`` columns or packed.

        In a packed layout each row's length is rounded up to a multiple of ``pad_multiple``, and
        the padding of the last row fills ``slots_in_all`` slots, if given.
        """
        slots = -(-counts // pad_multiple) * pad_multiple
        if layout == "padded":
            slots = torch.full_like(counts, width)
        elif slots_in_all is not None:
            slots[-1] += slots_in_all - slots.sum()
        row = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), slots)
        position = torch.arange(len(row), device=counts.device) - (slots.cumsum(0) - slots)[row]
        return cls(row, position, position < counts[row])

    def arrange(self, column: Tensor, padding: float) -> Tensor:
        """Return the values (K, ...) of a per-token column (B, T, ...), with ``padding``."""
        values = column[self.row, self.position.clamp(max=column.shape[1] - 1)]
        valid = self.valid.view(-1, *[1] * (values.dim() - 1))
        return torch.where(valid, values, torch.as_tensor(padding, dtype=values.dtype))

    def scatter(self, picked: Tensor, shape: torch.Size) -> Tensor:
        """Return (B, T) logprobs, given the (K - 1,) of the tokens after the first slot."""
        predicted = (self.valid & (self.position > 0))[1:]
        row, position = self.row[1:][predicted], self.position[1:][predicted]
        return picked.new_zeros(shape).index_put((row, position), picked[predicted])

    def visible(self) -> Tensor:
        """Return a mask (K, K): whether a slot (row of the mask) attends to another (column)."""
        slots = len(self.row)
        causal = torch.ones(slots, slots, dtype=torch.bool, device=self.row.device)
        return causal.tril_() & (self.row[:, None] == self.row[None])

    def of_row(self, row: int) -> Tensor:
        """Return the slots of a row's tokens in order, as a mask (K,)."""
        return self.valid & (self.row == row)
