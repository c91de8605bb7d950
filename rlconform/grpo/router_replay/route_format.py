"""``RouteFormat``: the layers, experts and dtype of the column ``routed_experts``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


class RouterReplayError(RuntimeError):
    """Routes are missing, invalid or not used as often as the model has routers."""


@dataclass(frozen=True)
class RouteFormat:
    """Routes of a model: the ``top_k`` experts that each of its ``layers`` chose for a token.

    ``ValueError`` if there is no layer, no expert to choose, or too many experts for int16.
    """

    layers: int  # with a router; other layers have no place in the column
    top_k: int
    experts: int  # of each layer

    def __post_init__(self) -> None:
        if self.layers < 1 or not 1 <= self.top_k <= self.experts:
            raise ValueError(
                f"expected a layer or more, and top_k from 1 to the number of experts; got {self}"
            )
        if self.experts > torch.iinfo(torch.int16).max:
            raise ValueError(f"expected at most 32767 experts; got {self.experts}")

    @property
    def dtype(self) -> torch.dtype:
        """The smallest dtype that holds every expert and ``missing``.

        Above 255 experts it is int16, because torch lacks most operations of uint16.
        """
        return torch.uint8 if self.experts <= torch.iinfo(torch.uint8).max else torch.int16

    @property
    def missing(self) -> int:
        """The value for experts that are not known, which is no expert: 255 or 32767."""
        return torch.iinfo(self.dtype).max

    def blank(self, *shape: int) -> Tensor:
        """Make routes (*shape, L, K) in which no expert is known."""
        return torch.full((*shape, self.layers, self.top_k), self.missing, dtype=self.dtype)

    def is_missing(self, routes: Tensor) -> Tensor:
        """Return (..., L), true where no expert is known."""
        return (routes == self.missing).all(dim=-1)

    def is_invalid(self, routes: Tensor) -> Tensor:
        """Return (..., L), true where the values are neither K different experts nor missing."""
        wide = routes.long()
        outside = ((wide < 0) | (wide >= self.experts)).any(dim=-1)
        ordered = wide.sort(dim=-1).values
        repeated = (ordered[..., 1:] == ordered[..., :-1]).any(dim=-1)
        return (outside | repeated) & ~self.is_missing(routes)

    def check_rows(self, routes: Tensor, lengths: Tensor) -> None:
        """Raise ``RouterReplayError`` unless rows (B, S, L, K) can be replayed.

        Each token needs K different experts in every layer. The last token of a row, which no later
        token attends to and whose output predicts nothing, may have none, as may padding.
        """
        if routes.dtype != self.dtype or routes.shape[2:] != (self.layers, self.top_k):
            raise RouterReplayError(
                f"expected routed_experts (N, S, {self.layers}, {self.top_k}) {self.dtype}; got "
                f"{tuple(routes.shape)} {routes.dtype}: generation and training have other models"
            )
        position = torch.arange(routes.shape[1], device=routes.device)
        needed = position < (lengths.to(routes.device) - 1)[:, None]
        wrong = (self.is_invalid(routes) | self.is_missing(routes)).any(dim=-1) & needed
        if bool(wrong.any()):
            row, token = (int(place) for place in wrong.nonzero()[0])
            raise RouterReplayError(
                f"expected {self.top_k} of {self.experts} experts in each layer for all tokens but "
                f"a row's last; got {routes[row, token].tolist()} for token {token} of row {row}"
            )
