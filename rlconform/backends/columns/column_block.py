"""``ColumnBlock``: the columns of one put, each as one contiguous buffer, in numpy alone.

A process that only keeps parcels, as a store does, needs no torch. Buffers travel out of band in
pickle protocol 5: whoever unpickles one maps them without a copy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from rlconform.backends.index import Extent

if TYPE_CHECKING:  # the wire's modules import torch
    from rlconform.wire import LeafKind

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """N values of one field, end to end.

    Attributes:
        layout: How the column was put.
        dtype: The dtype's name without ``torch.``, or ``object``.
        shape: Of one row, for a dense column; of one token, for a jagged one; empty for objects.
        itemsize: Bytes of one element; 1 for objects.
        values: The bytes, (M,) uint8.
        offsets: (N + 1,) items before each row; None for a dense column, whose rows are one each.
    """

    layout: LeafKind
    dtype: str
    shape: tuple[int, ...]
    itemsize: int
    values: Bytes
    offsets: Integers | None

    @property
    def item_bytes(self) -> int:
        """Bytes of one item: a dense column's row, a jagged one's token, an object's byte."""
        return self.itemsize * math.prod(self.shape)

    @property
    def extent(self) -> Extent:
        """What the index should know of it."""
        if self.offsets is None:
            return Extent(self.dtype, self.item_bytes)
        return Extent(self.dtype, np.diff(self.offsets) * self.item_bytes)


#: Columns by field; all have as many rows.
ColumnBlock = dict[str, StoredColumn]


def equally_long(lengths: Sequence[int] | Integers) -> bool:
    """Whether rows of these lengths, at least one, come back dense: all have the same length.

    Rows that were put jagged are no exception, one row or rows of length zero neither: so do
    NeMo-RL's adapters, and callers of theirs index the column and compare its shape.
    """
    return bool((np.asarray(lengths) == lengths[0]).all())


def extents_of(parcel: ColumnBlock) -> dict[str, Extent]:
    """What an index should know of the parcel."""
    return {name: column.extent for name, column in parcel.items()}


def bytes_of(parcel: ColumnBlock) -> int:
    """Bytes of the parcel's values."""
    return sum(column.values.nbytes for column in parcel.values())
