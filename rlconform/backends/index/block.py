"""``Block``: the index's record of one put, with counts of its live and wasted bytes.

    put ──▶ Block(payload) ◀── parts of rows        a block without parts is freed
                │
                └── more wasted bytes than live ones ──▶ due: compacted, live rows are copied

The bytes of a block are stored in one piece, at ``payload``; rows that were cleared or overwritten
stay there as waste. A block is due for compaction once it has more wasted than live bytes. This
bounds the waste by the live bytes, and no more bytes are copied than were wasted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Names = frozenset[str]

#: Rows of a block, grouped by the fields that are selected of them.
Selection = dict[Names, list[int]]

#: Bytes counted for each value beside its own, so that a live value never counts 0.
_PLACE_BYTES = 8
#: A block with fewer wasted bytes is not compacted.
SLACK_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Extent:
    """The index's record of one column of a block."""

    kind: str  # the dtype's name, or "object"; all rows of a field have the same
    sizes: int | npt.NDArray[np.int64]  # bytes of each row; one number if all rows have the same


def kinds_of(extents: Mapping[str, Extent]) -> dict[str, str]:
    """Return the kind of values in each column."""
    return {name: extent.kind for name, extent in extents.items()}


class Block:
    """The columns of one put.

    ``number`` is unique within an index; ``sample_ids`` are in the order in which the rows are
    stored; ``payload`` is where the bytes are stored, and the index does not interpret it.
    """

    def __init__(
        self,
        number: int,
        partition_id: str,
        sample_ids: Sequence[str],
        extents: Mapping[str, Extent],
        payload: Any,
    ) -> None:
        self.number = number
        self.partition_id = partition_id
        self.sample_ids = sample_ids
        self.extents = extents
        self.names: Names = frozenset(extents)
        self.payload = payload
        self.wasted_bytes = 0  # of values that can't be read any more
        self._row_sizes: dict[Names, int | npt.NDArray[np.int64]] = {}
        self.live_bytes = self._bytes_of(self.names, range(len(sample_ids)))
        self._due_below = self.live_bytes

    def release(self, names: Names, indexes: Sequence[int]) -> None:
        """Count these fields of these rows as wasted."""
        size = self._bytes_of(names, indexes)
        self.live_bytes -= size
        self.wasted_bytes += size

    @property
    def due(self) -> bool:
        """Whether the block should be compacted now."""
        enough = self.wasted_bytes >= max(self.live_bytes, SLACK_BYTES)
        return enough and 0 < self.live_bytes <= self._due_below

    def start_compaction(self) -> None:
        """Postpone the next compaction until half of the live bytes are gone too.

        So only one process compacts the block; if that process dies, another process will later.
        """
        self._due_below = self.live_bytes // 2

    def _bytes_of(self, names: Names, indexes: Sequence[int]) -> int:
        sizes = self._row_sizes.get(names)
        if sizes is None:
            sizes = sum((self.extents[name].sizes for name in names), start=0)
            sizes += _PLACE_BYTES * len(names)
            self._row_sizes[names] = sizes
        if isinstance(sizes, int):
            return sizes * len(indexes)
        if len(indexes) == len(sizes):
            return int(sizes.sum())
        return int(sizes[np.fromiter(indexes, np.int64, len(indexes))].sum())


@dataclass(frozen=True, slots=True)
class Source:
    """The part of a read whose values are in one block."""

    block: Block
    names: Names  # the fields to take from it
    indexes: list[int]  # the rows to take, by their place in the block
    positions: list[int]  # their places among the requested rows
