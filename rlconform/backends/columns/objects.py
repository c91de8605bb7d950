"""Encodes object columns as bytes, each value separately, so that rows can be read one by one.

Plain data is encoded exactly by ``codec``; a value of any other class is pickled. Tensors in a
pickled value are stored without the rest of the storage that they are views of.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from rlconform.backends.columns import codec
from rlconform.backends.columns.column_block import Bytes, Integers
from rlconform.backends.columns.selection import running_sum
from rlconform.wire import serialization

_PLAIN, _PICKLED = b"\0", b"\1"


def encode(values: Sequence[Any]) -> tuple[Bytes, Integers]:
    """Return the values' bytes and (N + 1,) offsets; ``TypeError`` if a value can't be pickled."""
    rows = [_encode(value) for value in values]
    lengths = np.array([len(row) for row in rows], np.int64)
    return np.frombuffer(b"".join(rows), dtype=np.uint8), running_sum(lengths)


def decode(values: Bytes, offsets: Integers | None) -> Iterator[Any]:
    """Decode what ``encode`` returned; yield a new object for each value."""
    assert offsets is not None, "an object column has offsets"
    for start, end in pairwise(offsets.tolist()):
        row = values.data[start:end]
        yield codec.unpack(row[1:]) if row[:1] == _PLAIN else serialization.loads(row[1:])


def has_pickles(values: Bytes, offsets: Integers | None) -> bool:
    """Whether one of the values that ``encode`` returned is a pickle."""
    assert offsets is not None, "an object column has offsets"
    starts, ends = offsets[:-1].tolist(), offsets[1:].tolist()
    return any(values.data[s:e][:1] != _PLAIN for s, e in zip(starts, ends, strict=True))


def _encode(value: Any) -> bytes:
    try:
        return _PLAIN + codec.pack(value)
    except TypeError:
        pass  # not plain data
    try:
        pickled, _ = serialization.dumps(value, compact_tensors=True)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as error:
        raise TypeError(f"a value of an object column can't be pickled: {error}") from error
    return _PICKLED + pickled
