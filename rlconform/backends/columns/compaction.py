"""Writing a block's live rows anew, so that its wasted bytes can go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlconform.backends.columns.column_block import ColumnBlock
from rlconform.backends.columns.gather import gather
from rlconform.backends.columns.selection import RowSelection, Shared


def live_parcels(
    parcel: ColumnBlock, live: Mapping[frozenset[str], Sequence[int]]
) -> dict[frozenset[str], ColumnBlock]:
    """For each set of fields a parcel of the rows in which just these are live, in fresh memory."""
    return {names: _taken(parcel, names, rows) for names, rows in live.items()}


def _taken(parcel: ColumnBlock, names: frozenset[str], rows: Sequence[int]) -> ColumnBlock:
    picked = [RowSelection(parcel, names, np.array(rows, np.int64), np.arange(len(rows)))]
    shared = Shared(chunked=False)
    return {name: gather(picked, name, len(rows), shared) for name in sorted(names)}
