"""Gathers rows of blocks, in the requested order, into columns in fresh memory.

    blocks ── (which rows go where) ──▶ runs of bytes ──▶ one copy each, or one gather of words

Rows that are stored and requested consecutively form one run, so reading a batch in the order of
its put costs one copy per field. Long runs are copied, with several threads if there are many
bytes; short scattered runs are gathered as words by index, which is cheaper than a call per row.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlconform.backends.columns.column_block import Bytes, ColumnBlock, StoredColumn, equally_long
from rlconform.backends.columns.selection import (
    RowSelection,
    RowSpans,
    Shared,
    running_sum,
    word_index,
)

if TYPE_CHECKING:  # rlconform.wire imports torch
    from rlconform.wire import LeafKind

#: Mean words of a run from which copying runs is faster than gathering words.
_LONG_RUN = 128
#: Bytes that make another thread worthwhile.
_THREAD_BYTES = 8 * 2**20
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def gather(
    selections: Sequence[RowSelection], name: str, n_rows: int, shared: Shared | None = None
) -> StoredColumn:
    """Gather one field of ``n_rows`` rows from the selections into a column in fresh memory.

    Fields of one read must get the same ``shared``, so that common indexes are computed once. The
    column is dense if all rows have one shape, however they were put, and jagged otherwise.
    ``ValueError`` if the rows differ in dtype, or their shapes don't fit in one tensor.
    """
    shared = shared or Shared()
    pieces = [piece for piece in selections if name in piece.names]
    columns = [piece.columns[name] for piece in pieces]
    first = columns[0]
    if any(column.dtype != first.dtype for column in columns):
        raise ValueError(f"rows differ in dtype: {sorted({c.dtype for c in columns})}")
    if all(column.layout == "dense" and column.shape == first.shape for column in columns):
        spans = shared.spans(pieces, [1] * len(pieces), n_rows)
        values = _copy([c.values for c in columns], spans, first.item_bytes, shared)
        return StoredColumn("dense", first.dtype, first.shape, first.itemsize, values, None)
    return _gather_ragged(pieces, columns, n_rows, shared)


def _gather_ragged(
    pieces: Sequence[RowSelection], columns: Sequence[StoredColumn], n_rows: int, shared: Shared
) -> StoredColumn:
    """Gather rows whose first dimensions are ragged or differ, as spans of items."""
    tails = {c.shape[1:] if c.layout == "dense" else c.shape for c in columns}
    if len(tails) > 1 or any(c.layout == "dense" and not c.shape for c in columns):
        shapes = sorted({c.shape for c in columns})
        raise ValueError(f"rows differ in more than their first dimension: {shapes}")
    (tail,) = tails
    first = columns[0]
    before = [c.shape[0] if c.offsets is None else c.offsets for c in columns]
    spans = shared.spans(pieces, before, n_rows)
    item_bytes = first.itemsize * math.prod(tail)
    values = _copy([c.values for c in columns], spans, item_bytes, shared)
    layout: LeafKind = "object" if first.layout == "object" else "jagged"
    if layout == "jagged" and equally_long(spans.length):
        shape = (int(spans.length[0]), *tail)
        return StoredColumn("dense", first.dtype, shape, first.itemsize, values, None)
    return StoredColumn(layout, first.dtype, tail, first.itemsize, values, spans.offsets)


def _copy(sources: Sequence[Bytes], spans: RowSpans, item_bytes: int, shared: Shared) -> Bytes:
    """Copy the spans' bytes from the sources into one new buffer."""
    values = shared.memory(int(spans.length.sum()) * item_bytes)
    if not values.size:
        return values
    word_bytes = math.gcd(8, item_bytes)
    first, last = spans.runs()
    if values.size < _LONG_RUN * word_bytes * len(first):
        words = values.view(_WORDS[word_bytes])
        _gather_words(sources, spans, item_bytes // word_bytes, words, shared)
        return values
    starts = (spans.start[first] * item_bytes).tolist()
    ends = ((spans.start[last] + spans.length[last]) * item_bytes).tolist()
    numbers = spans.column[first].tolist()
    _concatenate([sources[n][a:b] for n, a, b in zip(numbers, starts, ends, strict=True)], values)
    return values


def _gather_words(
    sources: Sequence[Bytes],
    spans: RowSpans,
    words_per_item: int,
    out: npt.NDArray[Any],
    shared: Shared,
) -> None:
    """Gather the spans into ``out``, an array of words; an item is a whole number of words."""
    if len(sources) == 1:
        index = shared.word_index(spans, words_per_item)
        np.take(sources[0].view(out.dtype), index, out=out, mode="clip")  # unbuffered, unlike raise
        return
    start, length = spans.start * words_per_item, spans.length * words_per_item
    place = running_sum(length)[:-1]
    for number, source in enumerate(sources):
        rows = np.flatnonzero(spans.column == number)
        index = word_index(start[rows], length[rows])
        out[word_index(place[rows], length[rows])] = source.view(out.dtype)[index]


def _concatenate(runs: list[Bytes], out: Bytes) -> None:
    """Copy the runs into ``out``, in several threads if there are enough bytes and cores."""
    workers = min(len(os.sched_getaffinity(0)), out.size // _THREAD_BYTES)
    if workers <= 1:
        np.concatenate(runs, out=out)
        return
    threads = []
    share = -(-out.size // workers)
    for begin in range(0, out.size, share):
        end = min(begin + share, out.size)
        mine, runs = _split(runs, end - begin)
        threads.append(
            threading.Thread(target=np.concatenate, args=(mine,), kwargs={"out": out[begin:end]})
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _split(runs: list[Bytes], size: int) -> tuple[list[Bytes], list[Bytes]]:
    """Split the runs into two parts, the first of ``size`` bytes."""
    for n, run in enumerate(runs):
        if size <= run.size:
            return [*runs[:n], run[:size]], [run[size:], *runs[n + 1 :]]
        size -= run.size
    return runs, []


def compact(
    columns: ColumnBlock, live: Mapping[frozenset[str], Sequence[int]]
) -> dict[frozenset[str], ColumnBlock]:
    """Copy the live rows of a block to new blocks, one block for each set of live fields.

    The memory of the old block, with its dead rows, can then be freed.
    """
    return {names: _copy_rows(columns, names, rows) for names, rows in live.items()}


def _copy_rows(columns: ColumnBlock, names: frozenset[str], rows: Sequence[int]) -> ColumnBlock:
    selection = [RowSelection(columns, names, np.array(rows, np.int64), np.arange(len(rows)))]
    shared = Shared(chunked=False)
    return {name: gather(selection, name, len(rows), shared) for name in sorted(names)}
