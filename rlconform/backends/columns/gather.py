"""Rows out of parcels, in the order asked, as columns in memory of their own.

    parcels ── (which rows go where) ──▶ runs of bytes ──▶ one copy each, or one gather of words

Rows that lie and are asked for one after another are one run, so a batch that is read as it was
put costs one copy per field. Long runs are copied, with several threads where there are many
bytes; short scattered ones are gathered as words by index, which costs less than a call per row.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from rlconform.backends.columns.parcel import Bytes, Column, Integers, Parcel

if TYPE_CHECKING:  # the wire's modules import torch
    from rlconform.wire import LeafKind

#: Mean words of a run from which copying runs is faster than gathering words.
_LONG_RUN = 128
#: Bytes that are worth a thread of their own.
_THREAD_BYTES = 8 * 2**20
_WORDS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True, slots=True)
class Picked:
    """Rows of a parcel.

    Attributes:
        parcel: The parcel.
        names: The fields to take from it.
        indexes: (K,) rows of the parcel.
        positions: (K,) rows of the result that they become.
    """

    parcel: Parcel
    names: frozenset[str]
    indexes: npt.NDArray[np.integer[Any]]
    positions: npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class _Spans:
    """N rows of the result as spans of items in several columns.

    Attributes:
        column: (N,) number of the column.
        start, length: (N,) items.
    """

    column: Integers
    start: Integers
    length: Integers


def gather(picked: Sequence[Picked], name: str, n_rows: int) -> Column:
    """The values of one field in fresh memory, ``n_rows`` of them, each given by one of ``picked``.

    The result is dense where all rows are of one shape and one of them, at least, was put dense;
    it is jagged otherwise.

    Raises:
        ValueError: Rows of unlike dtypes, or whose shapes no one tensor can hold.
    """
    pieces = [piece for piece in picked if name in piece.names]
    columns = [piece.parcel[name] for piece in pieces]
    first = columns[0]
    if any(column.dtype != first.dtype for column in columns):
        raise ValueError(f"rows of unlike dtypes: {sorted({c.dtype for c in columns})}")
    if all(column.layout == "dense" and column.shape == first.shape for column in columns):
        spans = _spans(pieces, [1] * len(pieces), n_rows)
        values = _copy([column.values for column in columns], spans, first.item_bytes)
        return Column("dense", first.dtype, first.shape, first.itemsize, values, None)
    return _gather_ragged(pieces, columns, n_rows)


def _gather_ragged(pieces: Sequence[Picked], columns: Sequence[Column], n_rows: int) -> Column:
    """Rows as runs of items, wherever their first dimensions differ or are ragged."""
    tails = {c.shape[1:] if c.layout == "dense" else c.shape for c in columns}
    if len(tails) > 1 or any(c.layout == "dense" and not c.shape for c in columns):
        shapes = sorted({c.shape for c in columns})
        raise ValueError(f"rows are unlike in more than their first dimension: {shapes}")
    (tail,) = tails
    first = columns[0]
    spans = _spans(
        pieces, [c.shape[0] if c.offsets is None else c.offsets for c in columns], n_rows
    )
    item_bytes = first.itemsize * math.prod(tail)
    values = _copy([c.values for c in columns], spans, item_bytes)
    lengths = spans.length
    if any(c.layout == "dense" for c in columns) and bool((lengths == lengths[0]).all()):
        return Column("dense", first.dtype, (int(lengths[0]), *tail), first.itemsize, values, None)
    layout: LeafKind = "object" if first.layout == "object" else "jagged"
    return Column(layout, first.dtype, tail, first.itemsize, values, _running_sum(lengths))


def _spans(pieces: Sequence[Picked], offsets: Sequence[Integers | int], n_rows: int) -> _Spans:
    """Where the rows lie, by each column's offsets, or the number of items in all of its rows."""
    column, start, length = (np.empty(n_rows, np.int64) for _ in range(3))
    for number, (piece, before) in enumerate(zip(pieces, offsets, strict=True)):
        at, rows = piece.positions, piece.indexes
        column[at] = number
        if isinstance(before, int):
            start[at] = rows * np.int64(before)
            length[at] = before
        else:
            start[at] = before[rows]
            length[at] = before[rows + 1] - start[at]
    return _Spans(column, start, length)


def _copy(sources: Sequence[Bytes], spans: _Spans, item_bytes: int) -> Bytes:
    """The spans' bytes, end to end.

    numpy asks for huge pages for large arrays and torch doesn't: without them the faults of fresh
    memory cost several times the copy.
    """
    total = int(spans.length.sum())
    values = np.empty(total * item_bytes, np.uint8)
    if not values.size:
        return values
    word_bytes = math.gcd(8, item_bytes)
    first, last = _runs(spans)
    if values.size < _LONG_RUN * word_bytes * len(first):
        _gather_words(sources, spans, item_bytes // word_bytes, values.view(_WORDS[word_bytes]))
        return values
    starts = (spans.start[first] * item_bytes).tolist()
    ends = ((spans.start[last] + spans.length[last]) * item_bytes).tolist()
    numbers = spans.column[first].tolist()
    _concatenate([sources[n][a:b] for n, a, b in zip(numbers, starts, ends, strict=True)], values)
    return values


def _gather_words(
    sources: Sequence[Bytes], spans: _Spans, words_per_item: int, out: npt.NDArray[Any]
) -> None:
    """The spans end to end in ``out``, which is seen as words that divide an item."""
    start, length = spans.start * words_per_item, spans.length * words_per_item
    if len(sources) == 1:
        index = _word_index(start, length)
        np.take(sources[0].view(out.dtype), index, out=out, mode="clip")  # unbuffered, unlike raise
        return
    place = _running_sum(length)[:-1]
    for number, source in enumerate(sources):
        rows = np.flatnonzero(spans.column == number)
        index = _word_index(start[rows], length[rows])
        out[_word_index(place[rows], length[rows])] = source.view(out.dtype)[index]


def _runs(spans: _Spans) -> tuple[Integers, Integers]:
    """The first and the last row of each run of rows that lie one after another."""
    ends = spans.start + spans.length
    breaks = (spans.start[1:] != ends[:-1]) | (spans.column[1:] != spans.column[:-1])
    cuts = np.flatnonzero(breaks)
    return np.append(0, cuts + 1), np.append(cuts, len(ends) - 1)


def _concatenate(runs: list[Bytes], out: Bytes) -> None:
    """The runs end to end in ``out``, by as many threads as the bytes and the cores are worth."""
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
    """The runs cut in two, the first part of ``size`` bytes."""
    for n, run in enumerate(runs):
        if size <= run.size:
            return [*runs[:n], run[:size]], [run[size:], *runs[n + 1 :]]
        size -= run.size
    return runs, []


def _word_index(start: Integers, length: Integers) -> Integers:
    """The indexes start, start + 1, ... of each span, span after span."""
    before = _running_sum(length)
    return np.repeat(start - before[:-1], length) + np.arange(before[-1])


def _running_sum(lengths: Integers) -> Integers:
    """(N + 1,) sums of the lengths before each."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets
