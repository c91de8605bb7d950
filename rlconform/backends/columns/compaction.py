"""Compaction: copies a block's live rows, so that the memory of its dead rows can be freed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.columns.gather import gather
from rlconform.backends.columns.selection import RowSelection, Shared


def compact(
    columns: ColumnBlock, live: Mapping[frozenset[str], Sequence[int]]
) -> dict[frozenset[str], ColumnBlock]:
    """For each set of fields, copy the rows of which exactly these fields are live."""
    return {names: _copy(columns, names, rows) for names, rows in live.items()}


def _copy(columns: ColumnBlock, names: frozenset[str], rows: Sequence[int]) -> ColumnBlock:
    selection = [RowSelection(columns, names, np.array(rows, np.int64), np.arange(len(rows)))]
    shared = Shared(chunked=False)
    return {name: gather(selection, name, len(rows), shared) for name in sorted(names)}
