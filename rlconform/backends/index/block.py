"""``Block``: what one put brought, seen from the index: which rows of it are still needed.

    put ──▶ Block(payload) ◀── parts of rows        the last part gone, the block goes too
                │
                └── wasted bytes outgrow the live ones ──▶ due: its live rows are written anew

A block's bytes lie in one piece, wherever ``payload`` says; rows of it that were cleared or
overwritten stay there as waste. Rewriting a block when the waste outgrows what is live bounds the
waste by the live bytes, and costs no more copying than bytes were wasted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Names = frozenset[str]

#: Rows of a block, by the fields of theirs that are meant.
Selection = dict[Names, list[int]]

#: What a value counts beside its bytes, for its place in the column; so a live one never counts 0.
_PLACE_BYTES = 8
#: Below this many wasted bytes a block isn't worth rewriting.
SLACK_BYTES = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Extent:
    """What the index knows of one column of a block.

    Attributes:
        kind: The dtype's name, or "object": what all rows of a field have in common.
        sizes: Bytes per row, one number where all rows are equally large.
    """

    kind: str
    sizes: int | npt.NDArray[np.int64]


class Block:
    """One put's columns.

    Attributes:
        number: Names the block among all of one index.
        partition_id: The partition of its rows.
        sample_ids: Its rows, in the order in which the bytes lie.
        extents: Its columns.
        names: Their names.
        payload: Where the bytes lie; the index only hands it on.
        live_bytes, wasted_bytes: Bytes of rows that are needed, and that are no longer.
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
        self.wasted_bytes = 0
        self._row_sizes: dict[Names, int | npt.NDArray[np.int64]] = {}
        self.live_bytes = self._bytes_of(self.names, range(len(sample_ids)))
        self._due_below = self.live_bytes

    def release(self, names: Names, indexes: Sequence[int]) -> None:
        """These fields of these rows aren't needed any more."""
        size = self._bytes_of(names, indexes)
        self.live_bytes -= size
        self.wasted_bytes += size

    @property
    def due(self) -> bool:
        """Whether it is time that somebody writes the live rows anew."""
        enough = self.wasted_bytes >= max(self.live_bytes, SLACK_BYTES)
        return enough and 0 < self.live_bytes <= self._due_below

    def hand_out(self) -> None:
        """Somebody writes it anew: it isn't due until half of what is live has gone, too.

        So nobody does the same work at the same time, and one who dies at it is made up for.
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
    """Where fields of some of the rows asked for lie.

    Attributes:
        block: The block.
        names: The fields to take from it.
        indexes: The rows to take, by their place in the block.
        positions: Their places among the rows asked for.
    """

    block: Block
    names: Names
    indexes: list[int]
    positions: list[int]
