"""Defects of values inside objects: lists of floats, arrays and tuples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from rlconform.mutants.call import MethodCall
from rlconform.mutants.memory.column_helpers import with_objects
from rlconform.mutants.memory.helpers import get_mutant, put_mutant

#: Bytes from which an array is sent once.
_LARGE = 4096


def _rebuilt(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return the value with ``change`` applied at every depth, from the inside out."""
    if type(value) is dict:
        value = {key: _rebuilt(each, change) for key, each in value.items()}
    elif type(value) is list:
        value = [_rebuilt(each, change) for each in value]
    return change(value)


@put_mutant("PUT-28", evidence="'log'", may_fail="PUT-21")
def NanInListsIsNone(put: MethodCall) -> None:
    """Stores None for NaN in lists of floats, as columns with a mask do."""

    def masked(value: Any) -> Any:
        if type(value) is list and value and all(type(each) is float for each in value):
            return [None if math.isnan(each) else each for each in value]
        return value

    put(fields=with_objects(put.fields, lambda rows: [_rebuilt(row, masked) for row in rows]))


@get_mutant("PUT-27", evidence="as before a change of row 0", may_fail="PUT-28 GET-13")
def LargeArraysSharedByRows(get: MethodCall) -> TensorDict:
    """Returns one array for all equal large arrays in the objects of a read."""
    known: dict[Any, Any] = {}

    def shared(value: Any) -> Any:
        if isinstance(value, np.ndarray | torch.Tensor) and value.nbytes >= _LARGE:
            array = np.asarray(value)
            key = type(value), array.dtype.str, array.shape, array.tobytes()
            return known.setdefault(key, value)
        return value

    read: TensorDict = with_objects(get(), lambda rows: [_rebuilt(row, shared) for row in rows])
    return read


@put_mutant("PUT-28", evidence="'log'", may_fail="PUT-21")
def TuplesInterned(put: MethodCall) -> None:
    """Stores an equal earlier tuple for a tuple in an object: (0, "a") for (0.0, "a")."""
    known: dict[Any, Any] = put.notes

    def interned(value: Any) -> Any:
        if type(value) is tuple and all(isinstance(each, int | float | str) for each in value):
            return known.setdefault(value, value)
        return value

    put(fields=with_objects(put.fields, lambda rows: [_rebuilt(row, interned) for row in rows]))


@put_mutant("PUT-28", evidence="'log'", may_fail="PUT-21")
def ScalarsGetADimension(put: MethodCall) -> None:
    """Stores an array without dimensions in an object as an array of one element."""

    def widened(value: Any) -> Any:
        if isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0:
            return value.reshape(1)
        return value

    put(fields=with_objects(put.fields, lambda rows: [_rebuilt(row, widened) for row in rows]))


@put_mutant("PUT-28", evidence="'log'", may_fail="PUT-21")
def TensorsInObjectsSentByAddress(put: MethodCall) -> None:
    """Sends each buffer of an object's tensors once, and tells buffers by where they begin."""

    def sent(row: Any) -> Any:
        known: dict[Any, torch.Tensor] = {}

        def once(value: Any) -> Any:
            if isinstance(value, torch.Tensor) and value.numel():
                return known.setdefault((value.data_ptr(), value.dtype), value)
            return value

        return _rebuilt(row, once)

    put(fields=with_objects(put.fields, lambda rows: [sent(row) for row in rows]))


#: Elements of a list from which it is packed.
PACKED = 64


@put_mutant("PUT-21", evidence="row 0 of 'log'")
def PutLongListsPackedAsIntegers(put: MethodCall) -> None:
    """Packs long lists of what is an int for ``isinstance``, so that bools become 0 and 1."""

    def packed(value: Any) -> Any:
        whole = isinstance(value, list) and all(isinstance(each, int) for each in value)
        return [int(each) for each in value] if whole and len(value) >= PACKED else value

    put(fields=with_objects(put.fields, lambda rows: [packed(row) for row in rows]))
