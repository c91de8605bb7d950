"""PUT-08: columns of one put that are views of the same memory, and begin at the same element."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from rlconform.certify.plugin.markers import requirement
from rlconform.certify.scenarios.partition import PartitionUnderTest
from rlconform.wire import rows_of

ROWS = 16
IDS = [f"u{n // 4}_g{n % 4}" for n in range(ROWS)]


def _base(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def _halves() -> tuple[torch.Tensor, torch.Tensor]:
    scores = _base(2 * ROWS)  # of pairs: chosen and rejected
    return scores[:ROWS], scores[::2]


def _transposed() -> tuple[torch.Tensor, torch.Tensor]:
    square = _base(ROWS, ROWS)
    return square, square.T


def _expanded() -> tuple[torch.Tensor, torch.Tensor]:
    rewards = _base(ROWS)
    return rewards, rewards[:1].expand(ROWS)


def _other_dtype() -> tuple[torch.Tensor, torch.Tensor]:
    values = _base(ROWS, 8)
    return values, values.view(torch.int32)


def _other_rows() -> tuple[torch.Tensor, torch.Tensor]:
    tokens = _base(ROWS * 4)
    even, uneven = torch.full((ROWS,), 4), torch.arange(ROWS).remainder(2) * 6 + 1
    return tuple(  # type: ignore[return-value]
        torch.nested.nested_tensor_from_jagged(
            tokens, torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
        )
        for lengths in (even, uneven)
    )


VIEWS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "halves": _halves,
    "transposed": _transposed,
    "expanded": _expanded,
    "other_dtype": _other_dtype,
    "other_rows": _other_rows,
}


@requirement("PUT-08")
@pytest.mark.parametrize("swapped", [False, True], ids=["", "swapped"])
@pytest.mark.parametrize("make", VIEWS.values(), ids=VIEWS)
def test_views_of_the_same_memory_are_columns_of_their_own(
    part: PartitionUnderTest,
    make: Callable[[], tuple[torch.Tensor, torch.Tensor]],
    swapped: bool,
) -> None:
    """Planes that copy a tensor once that is put under two names know it by its address."""
    x, y = reversed(make()) if swapped else make()
    rows = {name: [row.clone() for row in rows_of(leaf)] for name, leaf in (("x", x), ("y", y))}
    part.put(IDS, x=x, y=y)
    part.expect_rows(IDS, **rows)
    part.expect_rows(IDS[::-1], y=rows["y"][::-1])
    part.expect_rows(IDS, x=rows["x"])
