"""Encodes plain Python values as bytes and restores them with the same type and value.

msgpack encodes None, bool, int, float, str, bytes, list and dict. Values that it would change (a
tuple into a list) or can't encode (a set, an integer beyond 64 bits, an array) become msgpack
extensions; any other value raises ``TypeError``. Pickle is not used, so reading never runs code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import torch

from rlconform.wire.object_columns import object_array

_INTEGER, _TUPLE, _SET, _FROZENSET, _COMPLEX, _ARRAY, _OBJECTS, _SCALAR, _TENSOR = range(1, 10)

#: Types that msgpack encodes without an error, but restores as another type.
_INEXACT = frozenset({bytearray, memoryview, msgpack.ExtType, msgpack.Timestamp})
_CONTAINERS = (list, tuple, set, frozenset)


def pack(value: Any) -> bytes:
    """Encode ``value``.

    ``TypeError`` if it contains a value that can't be restored with the same type: an instance of a
    subclass, a function, an array of structures, a list that contains itself.
    """
    try:
        _reject_inexact(value)
        return _pack(value)
    except (RecursionError, ValueError, OverflowError) as error:
        raise TypeError(f"can't be encoded exactly: {error}") from error


def unpack(data: bytes | memoryview) -> Any:
    """Decode what ``pack`` returned. ``ValueError`` for other bytes."""
    return msgpack.unpackb(
        data, ext_hook=_extension, strict_map_key=False, unicode_errors="surrogatepass"
    )


def _pack(value: Any) -> bytes:
    packed: bytes = msgpack.packb(
        value, default=_to_extension, strict_types=True, unicode_errors="surrogatepass"
    )
    return packed


def _reject_inexact(value: Any) -> None:
    kind = type(value)
    if kind in _INEXACT:
        raise TypeError(f"a {kind.__name__} can't be encoded exactly")
    if kind is dict:
        children: list[Any] = [*value.keys(), *value.values()]
    elif kind in _CONTAINERS:
        children = list(value)
    elif kind is np.ndarray and value.dtype.hasobject:
        children = value.ravel().tolist()
    else:
        return
    # The set of types avoids walking through long lists of numbers.
    if not _LEAVES.issuperset(map(type, children)):
        for child in children:
            _reject_inexact(child)


def _to_extension(value: Any) -> msgpack.ExtType:
    """Encode a value that msgpack can't encode itself; msgpack calls this for each such value."""
    kind = type(value)
    if kind is torch.Tensor:
        return msgpack.ExtType(_TENSOR, _pack(_tensor_parts(value)))
    if isinstance(value, np.generic):
        return msgpack.ExtType(_SCALAR, _pack(_array_parts(np.asarray(value))))
    if kind is np.ndarray and value.dtype == object:
        return msgpack.ExtType(_OBJECTS, _pack([list(value.shape), value.ravel().tolist()]))
    if kind is np.ndarray:
        return msgpack.ExtType(_ARRAY, _pack(_array_parts(value)))
    if kind not in _PARTS:
        raise TypeError(f"a {kind.__module__}.{kind.__qualname__} can't be encoded exactly")
    code, parts = _PARTS[kind]
    return msgpack.ExtType(code, _pack(parts(value)))


def _array_parts(array: np.ndarray) -> list[Any]:
    if array.dtype.hasobject or array.dtype.names is not None:
        raise TypeError(f"an array of {array.dtype} can't be encoded exactly")
    return [array.dtype.str, list(array.shape), array.tobytes()]


def _tensor_parts(tensor: torch.Tensor) -> list[Any]:
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        raise TypeError("only dense tensors can be encoded inside an object column")
    return [dtype_name(tensor.dtype), list(tensor.shape), tensor_bytes(tensor).tobytes()]


def _extension(code: int, data: bytes) -> Any:
    return _REBUILD[code](unpack(data))


def _rebuild_array(parts: list[Any]) -> np.ndarray:
    dtype, shape, data = parts
    return np.frombuffer(data, dtype=np.dtype(dtype)).reshape(shape).copy()


def _rebuild_objects(parts: list[Any]) -> np.ndarray:
    shape, values = parts
    return object_array(values).reshape(shape)


def _rebuild_tensor(parts: list[Any]) -> torch.Tensor:
    dtype, shape, data = parts
    tensor = torch.empty(shape, dtype=dtype_named(dtype))
    tensor_bytes(tensor)[:] = np.frombuffer(data, dtype=np.uint8)
    return tensor


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype without ``torch.``, such as ``float32``."""
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype:
    """Return the dtype of a name such as ``float32``; ``ValueError`` if torch has no such dtype."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"{name!r} is no dtype of this torch")
    return dtype


def tensor_bytes(tensor: torch.Tensor) -> np.ndarray:
    """Return the bytes of a dense CPU tensor, ``(nbytes,)`` uint8.

    The array shares memory with a contiguous tensor; it is a copy of a tensor that is strided,
    expanded or a conjugate view.
    """
    plain = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    flat = plain.view(-1)
    if flat.stride() != (1,):  # a single element may keep any stride, and can't be seen as bytes
        flat = flat.clone(memory_format=torch.contiguous_format)
    shared: np.ndarray = flat.view(torch.uint8).numpy()
    return shared


_LEAVES = frozenset({type(None), bool, int, float, str, bytes, complex})
_PARTS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    int: (_INTEGER, str),
    tuple: (_TUPLE, list),
    set: (_SET, list),
    frozenset: (_FROZENSET, list),
    complex: (_COMPLEX, lambda value: [value.real, value.imag]),
}
_REBUILD: dict[int, Callable[[Any], Any]] = {
    _INTEGER: int,
    _TUPLE: tuple,
    _SET: set,
    _FROZENSET: frozenset,
    _COMPLEX: lambda parts: complex(*parts),
    _ARRAY: _rebuild_array,
    _OBJECTS: _rebuild_objects,
    _SCALAR: lambda parts: _rebuild_array(parts)[()],
    _TENSOR: _rebuild_tensor,
}
