"""Writing a block's live rows anew, so that its wasted bytes can go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rlconform.backends.columns.gather import gather
from rlconform.backends.columns.parcel import Parcel
from rlconform.backends.columns.spans import Picked, Shared


def live_parcels(
    parcel: Parcel, live: Mapping[frozenset[str], Sequence[int]]
) -> dict[frozenset[str], Parcel]:
    """For each set of fields a parcel of the rows in which just these are live, in fresh memory."""
    return {names: _taken(parcel, names, rows) for names, rows in live.items()}


def _taken(parcel: Parcel, names: frozenset[str], rows: Sequence[int]) -> Parcel:
    picked = [Picked(parcel, names, np.array(rows, np.int64), np.arange(len(rows)))]
    shared = Shared(chunked=False)
    return {name: gather(picked, name, len(rows), shared) for name in sorted(names)}
