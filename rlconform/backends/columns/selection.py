"""Row selections of a read: which rows of which block, and the places of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rlconform.backends.columns.column_block import Bytes, ColumnBlock, Integers

#: Columns with a size between these are cut from one chunk of memory.
_SMALL_BYTES, _LARGE_BYTES = 64 * 2**10, 8 * 2**20
_CHUNK_BYTES = 16 * 2**20
_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class RowSelection:
    """Rows of one block that a read copies."""

    columns: ColumnBlock
    names: frozenset[str]  # the fields to take from it
    indexes: npt.NDArray[np.integer[Any]]  # (K,) rows of the block
    positions: npt.NDArray[np.integer[Any]]  # (K,) rows of the result that they are copied to


@dataclass(frozen=True, eq=False)
class RowSpans:
    """The places of a result's N rows, as spans of items in several stored columns."""

    column: Integers  # (N,) number of the column
    start: Integers  # (N,) first item
    length: Integers  # (N,) number of items

    @cached_property
    def offsets(self) -> Integers:
        """(N + 1,) number of items before each span; fields with the same spans share the array."""
        return running_sum(self.length)

    def runs(self) -> tuple[Integers, Integers]:
        """Return the first and the last row of each run of consecutively stored rows."""
        ends = self.start + self.length
        breaks = (self.start[1:] != ends[:-1]) | (self.column[1:] != self.column[:-1])
        cuts = np.flatnonzero(breaks)
        return np.append(0, cuts + 1), np.append(cuts, len(ends) - 1)


class Shared:
    """Computations and memory that the fields of one read share.

    Fresh memory costs several times the copy into it, because every page faults. numpy uses huge
    pages for large arrays only, so medium-sized columns are cut from larger chunks. A column that
    outlives the others keeps its whole chunk alive, so do not set ``chunked`` for a single column
    or for columns that are stored.
    """

    def __init__(self, chunked: bool = True) -> None:
        self._chunked = chunked
        self._spans: dict[tuple[tuple[int, int], ...], RowSpans] = {}
        self._indexes: dict[tuple[RowSpans, int], Integers] = {}
        self._chunk: Bytes = np.empty(0, np.uint8)

    def spans(
        self, pieces: Sequence[RowSelection], before: Sequence[Integers | int], n_rows: int
    ) -> RowSpans:
        """Return the rows' spans; ``before`` has each column's offsets, or its items per row."""
        key = tuple(
            (id(piece), items if isinstance(items, int) else -id(items))
            for piece, items in zip(pieces, before, strict=True)
        )
        if key not in self._spans:
            self._spans[key] = _spans(pieces, before, n_rows)
        return self._spans[key]

    def word_index(self, spans: RowSpans, words_per_item: int) -> Integers:
        """Return the index of every word of the spans; an item has ``words_per_item`` words."""
        key = (spans, words_per_item)
        if key not in self._indexes:
            self._indexes[key] = word_index(
                spans.start * words_per_item, spans.length * words_per_item
            )
        return self._indexes[key]

    def memory(self, n_bytes: int) -> Bytes:
        """Allocate ``n_bytes``; if ``chunked``, cut medium sizes from a larger chunk."""
        if not self._chunked or not _SMALL_BYTES <= n_bytes < _LARGE_BYTES:
            return np.empty(n_bytes, np.uint8)
        if n_bytes > self._chunk.size:
            self._chunk = np.empty(_CHUNK_BYTES, np.uint8)
        taken = self._chunk[:n_bytes]
        self._chunk = self._chunk[-(-n_bytes // _ALIGNMENT) * _ALIGNMENT :]
        return taken


def word_index(start: npt.NDArray[Any], length: npt.NDArray[Any]) -> Integers:
    """Return the indexes start, start + 1, ... of every span, in order."""
    before = running_sum(length)
    return np.repeat(start - before[:-1], length) + np.arange(before[-1])


def running_sum(lengths: npt.NDArray[Any]) -> Integers:
    """Return the (N + 1,) sums of the lengths before each position."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _spans(
    pieces: Sequence[RowSelection], before: Sequence[Integers | int], n_rows: int
) -> RowSpans:
    column, start, length = (np.empty(n_rows, np.int64) for _ in range(3))
    for number, (piece, items) in enumerate(zip(pieces, before, strict=True)):
        at, rows = piece.positions, piece.indexes
        column[at] = number
        if isinstance(items, int):
            start[at] = rows * np.int64(items)
            length[at] = items
        else:
            start[at] = items[rows]
            length[at] = items[rows + 1] - start[at]
    return RowSpans(column, start, length)
