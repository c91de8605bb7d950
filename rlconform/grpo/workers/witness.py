"""``Witness``: shows from gradients, not from bookkeeping, which rows an update was trained on.

    logprobs (n, T) ── + zeros (n, T) ──▶ loss ── backward ──▶ gradients of the weights
                                                         └──▶ gradients of the zeros, by row

Nothing else changes: the zeros belong neither to the model nor to the optimizer, so they are in no
gradient norm, no weight decay and no checkpoint. The idea is that of the witness in RadixArk's
miles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor


class Witness:
    """Counts, row by row, the backward passes of an update that gave the row's logprobs a gradient.

        witness = Witness()
        logprobs = witness.add_zeros(logprobs, sample_ids)   # in each micro-batch, then backward
        witness.passes()                                     # {"a_g0": 1, "a_g1": 0, "b_g0": 2}

    Its gradients live as long as those of the weights: a new update or an aborted one has a new
    ``Witness``. It keeps two numbers per token of the update.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Sequence[str], Tensor]] = []

    def add_zeros(self, logprobs: Tensor, sample_ids: Sequence[str]) -> Tensor:
        """Return equal logprobs, whose gradients by row ``passes`` will read; ids are (n,)."""
        zeros = torch.zeros_like(logprobs, requires_grad=True)
        self._rows.append((sample_ids, zeros))
        return logprobs + zeros

    def passes(self) -> Counter[str]:
        """Count each row's passes with a gradient other than 0 at any token.

        The count of a row that was in a pass but never had a gradient is 0: all of its tokens are
        masked or clipped, or its advantages are 0 and there is no KL penalty.
        """
        counted: Counter[str] = Counter()
        for sample_ids, zeros in self._rows:
            gradient = torch.zeros_like(zeros) if zeros.grad is None else zeros.grad
            reached = gradient.ne(0).any(dim=1).tolist()
            for sample_id, has_gradient in zip(sample_ids, reached, strict=True):
                counted[sample_id] += int(has_gradient)
        return counted
