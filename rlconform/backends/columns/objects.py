"""Object columns as bytes: each value by itself, so that a row is read or dropped by itself.

Plain data goes in the exact encoding of ``codec``; a value of any other class is pickled, as Ray
would, with tensors inside by their own size and not by that of the storage that they look at.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import cloudpickle
import numpy as np
import torch

from rlconform.backends.columns import codec
from rlconform.backends.columns.column_block import Bytes, Integers
from rlconform.wire import reduce_tensor

_PLAIN, _PICKLED = b"\0", b"\1"


def encode(values: Sequence[Any]) -> tuple[Bytes, Integers]:
    """The values' bytes, end to end, and the (N + 1,) offsets between them.

    Raises:
        TypeError: A value that can't be pickled.
    """
    rows = [_encode(value) for value in values]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return np.frombuffer(b"".join(rows), dtype=np.uint8), offsets


def decode(values: Bytes, offsets: Integers | None) -> Iterator[Any]:
    """The values that were encoded; each a fresh one."""
    assert offsets is not None, "an object column has offsets"
    data = values.data
    bounds = offsets.tolist()
    for start, end in pairwise(bounds):
        row = data[start:end]
        yield codec.unpack(row[1:]) if row[:1] == _PLAIN else pickle.loads(row[1:])


def _encode(value: Any) -> bytes:
    try:
        return _PLAIN + codec.pack(value)
    except TypeError:
        pass  # not plain data
    pickled = io.BytesIO()
    pickled.write(_PICKLED)
    try:
        _Pickler(pickled, protocol=5).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        raise TypeError(f"a value of an object column can't be pickled: {error}") from error
    return pickled.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a tensor by its own size, not by that of the storage that it looks at.

    Classes of a script go by value, as no other process can import them.
    """

    def reducer_override(self, value: Any) -> Any:
        """How to pickle ``value``; ``NotImplemented`` for pickle's own way."""
        if reduced := reduce_tensor(value):
            return reduced
        if not isinstance(value, torch.Tensor) or value.is_nested or value.layout != torch.strided:
            return super().reducer_override(value)
        whole = value.untyped_storage().nbytes() == value.nbytes
        if whole and value.device.type == "cpu" and not value.requires_grad:
            return NotImplemented
        return value.detach().cpu().clone().__reduce_ex__(5)  # type: ignore[no-untyped-call]
