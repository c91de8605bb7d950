"""Rows that say whose they are: a row's bytes spell its partition, id, field and version.

A row that lands in the wrong place is then recognised wherever it turns up.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rlconform.wire import stack_or_nest


def labeled_row(
    partition_id: str, sample_id: str, field: str, version: int = 0, width: int = 0
) -> torch.Tensor:
    """One row as 1-D uint8: its description, padded to ``width`` bytes."""
    text = f"row:{partition_id}|{sample_id}|{field}|v{version}".encode()
    return torch.frombuffer(bytearray(text.ljust(width, b".")), dtype=torch.uint8)


def labeled_rows(
    partition_id: str, sample_ids: Sequence[str], field: str, version: int = 0, width: int = 0
) -> list[torch.Tensor]:
    """One self-describing row for each id."""
    return [labeled_row(partition_id, i, field, version, width) for i in sample_ids]


def labeled_column(
    partition_id: str, sample_ids: Sequence[str], field: str, version: int = 0, width: int = 0
) -> torch.Tensor:
    """Those rows as one column: dense (N, W) where all are of one width, else jagged (N, j)."""
    return stack_or_nest(labeled_rows(partition_id, sample_ids, field, version, width))


def random_rows(
    dtype: torch.dtype, shapes: Sequence[Sequence[int]], seed: int = 0
) -> list[torch.Tensor]:
    """Rows of random bits in ``dtype``, one for each shape; bools are 0 or 1.

    Of real floating rows of several values, each ends in a value that gets lost easily: a NaN with
    a payload, minus zero, infinity, in turn.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = [random_bits(dtype, shape, generator) for shape in shapes]
    if dtype.is_floating_point and dtype.itemsize > 1:
        odd = torch.tensor([float("nan"), -0.0, float("inf")], dtype=dtype)
        odd.view(torch.uint8)[0] |= 1
        for index, row in enumerate(row for row in rows if row.numel() > 1):
            row.view(-1)[-1] = odd[index % len(odd)]
    return rows


def random_bits(
    dtype: torch.dtype, shape: Sequence[int], generator: torch.Generator
) -> torch.Tensor:
    """A tensor of random bits in ``dtype``."""
    if dtype is torch.bool:
        return torch.randint(0, 2, tuple(shape), generator=generator).to(torch.bool)
    size = torch.empty(0, dtype=dtype).element_size()
    count = torch.Size(shape).numel()
    raw = torch.randint(0, 256, (count * size,), generator=generator, dtype=torch.uint8)
    return raw.view(dtype).reshape(tuple(shape))
