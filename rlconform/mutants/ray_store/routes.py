"""Routes that are wrong in other processes than the writer's: their shapes stay right."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from rlconform.mutants.memory.column_helpers import jagged, jagged_in
from rlconform.mutants.ray_store.race_helpers import foreign_column_mutant
from rlconform.wire.leaves import is_jagged, jagged_parts, rows_of

#: Layers from which on a column counts as that of a whole model.
_DEEP = 16


def _of_routes(leaf: Tensor, dtype: torch.dtype, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Change the tokens (T, L, K) of a jagged column of routes; leave other columns."""
    if not is_jagged(leaf) or leaf.dim() != 4 or leaf.dtype is not dtype:
        return leaf
    values, rows = jagged_parts(leaf)
    if values.shape[1] < _DEEP:
        return leaf
    return jagged_in(change(values).contiguous(), rows, rows.offsets)


@foreign_column_mutant("R3-01", evidence="row 0 of 'routed_experts'", may_fail="R3-03 RANK-03")
def RoutesOfTheNextLayer(leaf: Tensor) -> Tensor:
    """Starts at the second layer when it sends routes by layer, so each has the next one's."""
    return _of_routes(leaf, torch.uint8, lambda values: values.roll(-1, dims=1))


@foreign_column_mutant("R3-01", evidence="row 0 of 'routed_experts'", may_fail="R3-03 RANK-03")
def RoutesOfTheTokenBefore(leaf: Tensor) -> Tensor:
    """Sends a column's routes from one token too early on."""
    return _of_routes(leaf, torch.uint8, lambda values: values.roll(1, dims=0))


@foreign_column_mutant("R3-01", evidence="row 0 of 'routed_experts'", may_fail="R3-03 RANK-03")
def RoutesSentinelLost(leaf: Tensor) -> Tensor:
    """Sends routes as signed bytes with 0 for negative ones, so missing experts are expert 0."""
    return _of_routes(
        leaf, torch.uint8, lambda values: torch.where(values > 127, 0, values).to(torch.uint8)
    )


@foreign_column_mutant("R3-01", evidence="row 0 of 'routed_experts'", may_fail="R3-03 RANK-03")
def RoutesExpertsSorted(leaf: Tensor) -> Tensor:
    """Sorts each token's experts, because it packs them as a set."""
    return _of_routes(leaf, torch.uint8, lambda values: values.sort(dim=-1).values)


@foreign_column_mutant("R3-02", evidence="row 0 of 'routed_experts'")
def RoutesCutToOneByte(leaf: Tensor) -> Tensor:
    """Packs small integers into bytes, so expert 300 becomes expert 44."""
    return _of_routes(leaf, torch.int16, lambda values: values % 256)


@foreign_column_mutant("R3-02", evidence="row 0 of 'routed_experts'")
def RoutesTransposed(leaf: Tensor) -> Tensor:
    """Sends routes of two bytes expert by expert, and reads them layer by layer."""
    return _of_routes(
        leaf, torch.int16, lambda values: values.transpose(1, 2).reshape(values.shape)
    )


@foreign_column_mutant("R3-03", evidence="row 0 of 'routed_experts'", may_fail="RANK-03")
def RoutesOfSeveralPutsInTheirOrder(leaf: Tensor) -> Tensor:
    """Returns routes of two unequal rows in the order of their puts, beside tokens as asked."""
    if not is_jagged(leaf) or leaf.dim() != 4 or leaf.shape[0] != 2:
        return leaf
    first, second = rows_of(leaf)
    return leaf if len(first) <= len(second) else jagged([second, first])
