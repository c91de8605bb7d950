"""Makes batches from a seed (the same in every process), and checksums of rows."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.bench.document import ShapeResult
from rlconform.bench.plan import BatchShape, ColumnShape
from rlconform.contract import Tags
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.wire import pack_jagged_fields
from rlconform.wire.leaves import is_jagged, jagged_parts

#: The ragged dimension whose elements count as tokens.
TOKENS = "tokens"


def make_batch(shape: BatchShape) -> TensorDict:
    """Return the shape's batch, batch size ``(N,)``, which is the same in every process."""
    random = torch.Generator().manual_seed(_seed(shape))
    counts = ragged_counts(shape)
    columns = {}
    for name, column in shape.columns.items():
        if name == INPUT_LENGTHS and TOKENS in counts:
            columns[name] = counts[TOKENS].to(_dtype(column))
        else:
            width = [int(counts[column.ragged].max())] if column.ragged else []
            columns[name] = _values([shape.rows, *width, *column.sizes], _dtype(column), random)
    batch = TensorDict(columns, batch_size=[shape.rows])
    for dimension, lengths in counts.items():
        along = [name for name, column in shape.columns.items() if column.ragged == dimension]
        batch = pack_jagged_fields(batch, lengths, along)
    return batch


def ragged_counts(shape: BatchShape) -> dict[str, Tensor]:
    """Return how many elements each row has along each ragged dimension, (N,) int64."""
    random = torch.Generator().manual_seed(_seed(shape))
    return {
        name: torch.randint(fewest, most + 1, (shape.rows,), generator=random)
        for name, (fewest, most) in shape.ragged.items()
    }


def make_tags(shape: BatchShape) -> list[Tags]:
    """Return a dict per row, as a rollout writes it: length, weight version, reward deviation."""
    lengths = ragged_counts(shape).get(TOKENS, torch.zeros(shape.rows, dtype=torch.int64))
    return [
        {INPUT_LENGTHS: length, "weight_version": 7, "std": 0.5, "truncated": False}
        for length in lengths.tolist()
    ]


def sample_ids(label: str, rows: int) -> list[str]:
    """Return ``rows`` ids that are unique to the label."""
    return [f"{label}.{row}_g0" for row in range(rows)]


def read_order(shape: BatchShape) -> list[int]:
    """Return a shuffled order of the shape's rows."""
    random = torch.Generator().manual_seed(_seed(shape))
    return torch.randperm(shape.rows, generator=random).tolist()


def describe(shape: BatchShape) -> ShapeResult:
    """Return rows, tokens and bytes of the shape's batch, computed without making the batch."""
    counts = {name: int(lengths.sum()) for name, lengths in ragged_counts(shape).items()}
    return ShapeResult(
        name=shape.name,
        title=shape.title,
        rows=shape.rows,
        tokens=counts.get(TOKENS, 0),
        bytes=sum(
            counts.get(column.ragged, shape.rows)
            * math.prod(column.sizes)
            * _dtype(column).itemsize
            for column in shape.columns.values()
        ),
        fields={name: str(column) for name, column in shape.columns.items()},
    )


def row_checksums(batch: TensorDict, fields: Sequence[str]) -> list[int]:
    """Return a checksum per row over dtypes, shapes and bytes, equal for dense and jagged columns.

    Raise ``LookupError`` if a field is missing, ``TypeError`` if it is no tensor.
    """
    sums = [0] * int(batch.batch_size[0])
    for name in fields:
        leaf: Any = batch.get(name, None)
        if leaf is None:
            raise LookupError(f"field {name!r} was not returned")
        if not isinstance(leaf, Tensor):
            raise TypeError(f"field {name!r} was returned as {type(leaf).__name__}")
        sums = _add_column(sums, leaf)
    return sums


def _add_column(sums: list[int], leaf: Tensor) -> list[int]:
    if is_jagged(leaf):
        values, rows = jagged_parts(leaf)
        lengths, sizes = rows.lengths.tolist(), values.shape[1:]
    else:
        values = leaf.detach().flatten(0, 1) if leaf.dim() > 1 else leaf.detach()
        lengths = [leaf.shape[1] if leaf.dim() > 1 else 1] * len(sums)
        sizes = leaf.shape[2:]
    unit = math.prod(sizes) * leaf.dtype.itemsize
    head = zlib.crc32(f"{leaf.dtype} {leaf.dim()} {tuple(sizes)}".encode())
    data = values.contiguous().view(-1).view(torch.uint8).numpy().data
    ends = (np.cumsum([0, *lengths]) * unit).tolist()
    return [
        zlib.crc32(data[start:end], before ^ head ^ length)
        for before, length, start, end in zip(sums, lengths, ends, ends[1:], strict=False)
    ]


def _seed(shape: BatchShape) -> int:
    return zlib.crc32(shape.name.encode())


def _dtype(column: ColumnShape) -> torch.dtype:
    dtype: torch.dtype = getattr(torch, column.dtype)
    return dtype


def _values(size: list[int], dtype: torch.dtype, random: torch.Generator) -> Tensor:
    """Return random bytes for uint8, token ids for other integers, log probabilities for floats."""
    if dtype is torch.uint8:  # eight bytes at a time: router replay has hundreds of megabytes
        words = torch.empty(-(-math.prod(size) // 8), dtype=torch.int64).random_(generator=random)
        return words.view(torch.uint8)[: math.prod(size)].view(size)
    if dtype.is_floating_point:
        return torch.rand(size, generator=random).neg_().to(dtype)
    return torch.randint(0, 2**15, size, generator=random).to(dtype)
