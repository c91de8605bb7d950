"""Object columns: one Python value per row, of any kind, None included.

tensordict and the planes use several forms of such a column. ``object_rows`` reads all of them;
``object_column`` makes the form that can be sliced, indexed and concatenated with its batch;
``object_array`` makes the form that the contract of ``put_samples`` names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from tensordict import NonTensorData, NonTensorStack, is_non_tensor

#: numpy dtype kinds of arrays that hold Python values: objects, bytes, strings.
_OBJECT_KINDS = frozenset("OSU")


def object_column(values: Iterable[Any]) -> NonTensorStack:
    """Build a column of the given values, one per row, without copying them."""
    return NonTensorStack(*[NonTensorData(value) for value in values])


def object_array(values: Sequence[Any]) -> np.ndarray[Any, Any]:
    """Build a 1-D numpy object array of ``values``; ``np.array`` would unpack nested lists."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def object_rows(leaf: object, n: int) -> list[Any]:
    """Return the ``n`` values of an object column in any form; ``TypeError`` for anything else.

    A ``NonTensorData`` has an array with one value per row, or one value that all rows share.
    ``ValueError`` if there are not ``n`` values. Slicing a batch does not slice the array in its
    ``NonTensorData``, so nothing shows which of its values remain.
    """
    if isinstance(leaf, NonTensorData):
        data = leaf.data
        rows = _array_rows(data) if _is_object_array(data) else [data] * n
    elif isinstance(leaf, NonTensorStack):
        rows = leaf.tolist()
    elif isinstance(leaf, list):
        rows = list(leaf)
    elif _is_object_array(leaf):
        rows = _array_rows(leaf)
    else:
        raise TypeError(f"not an object column: {type(leaf).__name__}")
    if len(rows) != n:
        raise ValueError(f"object column of {len(rows)} values in a batch of {n} rows")
    return rows


def is_object_column(leaf: object) -> bool:
    """Whether ``leaf`` is one of the forms that ``object_rows`` reads."""
    return is_non_tensor(leaf) or isinstance(leaf, list) or _is_object_array(leaf)


def _is_object_array(value: object) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0 and value.dtype.kind in _OBJECT_KINDS


def _array_rows(array: Any) -> list[Any]:
    # ``astype(object)`` converts numpy's string scalars to plain str or bytes.
    return list(array.astype(object, copy=False))
