"""``ColumnBlock``: the columns of one put, each as one contiguous numpy buffer.

A process that only stores columns needs no torch. Pickle protocol 5 sends the buffers out of band,
so a process that unpickles them maps them without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlconform.backends.index import Extent

if TYPE_CHECKING:  # rlconform.wire imports torch
    from rlconform.wire import LeafKind

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """The values of one field in N rows, concatenated."""

    layout: LeafKind  # of the put
    dtype: str  # without ``torch.``, or "object"
    shape: tuple[int, ...]  # of a dense column's row, of a jagged one's token; empty for objects
    itemsize: int  # bytes of one element; 1 for objects
    values: Bytes  # (M,)
    offsets: Integers | None  # (N + 1,) items before each row; None for dense: one item per row

    @property
    def item_bytes(self) -> int:
        """Bytes of one item: a row if dense, a token if jagged, a byte if object."""
        return self.itemsize * math.prod(self.shape)

    @property
    def extent(self) -> Extent:
        """The column's dtype and row sizes, for the index."""
        if self.offsets is None:
            return Extent(self.dtype, self.item_bytes)
        return Extent(self.dtype, np.diff(self.offsets) * self.item_bytes)


#: Columns by field; all have the same number of rows.
ColumnBlock = dict[str, StoredColumn]


def equally_long(lengths: Sequence[int] | Integers) -> bool:
    """Whether all lengths, at least one, are the same, so that a read returns the rows dense.

    That includes rows that were put jagged, a single row, and rows of length zero. NeMo-RL's
    adapters also return them dense, and their callers index the column and compare its shape.
    """
    return bool((np.asarray(lengths) == lengths[0]).all())


def extents_of(columns: ColumnBlock) -> dict[str, Extent]:
    """Return the extent of every column by name."""
    return {name: column.extent for name, column in columns.items()}


def bytes_of(columns: ColumnBlock) -> int:
    """Return the number of bytes of all values."""
    return sum(column.values.nbytes for column in columns.values())
