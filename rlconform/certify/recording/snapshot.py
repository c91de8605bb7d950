"""``Snapshot``: the value of an argument or a result at one moment, to tell whether it changes.

A check keeps no copies of what it passes to a plane, and would not notice that the plane empties a
batch or a meta. A snapshot copies the values; of a large tensor it keeps only the address and
torch's count of in-place changes.
"""

from __future__ import annotations

import dataclasses
import marshal
import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, TensorDictBase

from rlconform.certify.assertions.raw_bytes import raw_bytes
from rlconform.wire.leaves import is_jagged, jagged_buffers

#: Bytes of a tensor from which its values are not compared.
LARGE = 1 << 20

#: Types whose values are their own fingerprints. Most arguments are of these and of lists of them;
#: ``fingerprint`` treats them first, as all arguments of all calls are watched.
PLAIN = frozenset({type(None), bool, int, str, bytes})
#: The same, and floats, whose bits ``marshal`` keeps.
SCALARS = PLAIN | {float}
#: Version of ``marshal``'s format, the last in which equal values have equal bytes: later ones
#: write an object that occurs twice, or an interned text, in another way.
_BY_VALUE = 2


class Snapshot:
    """The value of an object when the snapshot is made."""

    def __init__(self, value: Any) -> None:
        self._value = value
        self._before = fingerprint(value)

    def changed(self) -> bool:
        """Whether the object has another value now."""
        return bool(fingerprint(self._value) != self._before)


def fingerprint(value: Any) -> Any:
    """Return a value that is equal for equal types, shapes, order and bits; else the identity."""
    kind = type(value)
    if kind in PLAIN:
        return kind, value
    if kind is float:
        return kind, struct.pack("d", value)  # tells apart zeros and NaNs
    if kind is list or kind is tuple:
        kinds = {*map(type, value)}
        if len(kinds) == 1 and kinds <= PLAIN:  # ids, above all
            return kind, kinds.pop(), tuple(value)
        if kinds == {dict} and _hold_scalars(value):  # tags of all rows
            return kind, dict, marshal.dumps(value, _BY_VALUE)
        return kind, tuple(map(fingerprint, value))
    if kind is dict:
        kinds_of_all = (*map(type, value), *map(type, value.values()))
        if PLAIN.issuperset(kinds_of_all):  # tags, above all
            return kind, kinds_of_all, tuple(value.items())
        return kind, tuple(map(fingerprint, value)), tuple(map(fingerprint, value.values()))
    return _of_object(value)


def _hold_scalars(dicts: Sequence[dict[Any, Any]]) -> bool:
    """Whether all keys and values are scalars. Python's own loops over them would take longer."""
    items = chain.from_iterable(map(dict.items, dicts))
    return SCALARS.issuperset(map(type, chain.from_iterable(items)))


def _of_object(value: Any) -> Any:
    """Return the fingerprint of a value of any other type."""
    match value:
        case torch.Tensor():  # first, as most are
            return _of_tensor(value)
        case int() | str() | bytes():
            return type(value), value
        case float():
            return type(value), struct.pack("d", value)
        case NonTensorData():
            return type(value), tuple(value.batch_size), fingerprint(value.data)
        case LazyStackedTensorDict():
            return type(value), fingerprint(value.tensordicts)
        case TensorDictBase():
            columns = [(name, fingerprint(value.get(name))) for name in value.keys()]  # noqa: SIM118
            described = type(value), tuple(value.batch_size), value.is_locked
            return described, sorted(columns, key=itemgetter(0))
        case np.ndarray():
            return value.dtype.str, value.shape, fingerprint(value.tolist())
        case np.generic():
            return type(value), value.tobytes()
        case Mapping():
            return type(value), tuple((fingerprint(k), fingerprint(v)) for k, v in value.items())
        case list() | tuple():
            return type(value), tuple(fingerprint(each) for each in value)
        case set() | frozenset():
            return type(value), frozenset(fingerprint(each) for each in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        return type(value), fingerprint(fields)
    return type(value), id(value)


def _of_tensor(tensor: torch.Tensor) -> Any:
    if is_jagged(tensor):
        return "jagged", tuple(fingerprint(part) for part in jagged_buffers(tensor))
    if tensor.layout is not torch.strided or tensor.is_nested:
        return str(tensor.layout), id(tensor)
    changes = None if tensor.is_inference() else tensor._version
    if tensor.numel() * tensor.element_size() > LARGE or tensor.device.type != "cpu":
        return tensor.dtype, tuple(tensor.shape), tensor.data_ptr(), changes
    return tensor.dtype, tuple(tensor.shape), raw_bytes(tensor)
