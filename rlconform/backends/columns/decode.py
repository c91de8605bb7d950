"""Rows that were picked, as the batch that a get returns."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import TensorDict

from rlconform.backends.columns.encode import batch_of, naming
from rlconform.backends.columns.gather import gather
from rlconform.backends.columns.selection import RowSelection, Shared


def read(picked: Sequence[RowSelection], names: Sequence[str], n_rows: int) -> TensorDict:
    """The named fields of ``n_rows`` rows, each given by one of ``picked``, in fresh memory.

    Raises:
        ValueError: Rows of a field, which the error names, that no one tensor can hold.
    """
    shared = Shared(chunked=len(names) > 1)
    columns = {}
    for name in names:
        with naming(name):
            columns[name] = gather(picked, name, n_rows, shared)
    return batch_of(columns, n_rows)
