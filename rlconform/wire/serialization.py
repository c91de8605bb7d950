"""Pickling for values that hold tensors; every process of rlconform sends Python values this way.

    value ── dumps ──▶ bytes and parts ──(another process)──▶ loads ──▶ value

``dumps`` is cloudpickle, which also pickles classes that only a script defines, with two
differences. Tensors of dtypes that torch can't unpickle, such as fp8, are reduced to their bytes.
Values that are sent separately, such as large tensors or Ray's object references, are left out and
returned as ``parts``.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch
from torch import Tensor

#: A function that rebuilds the value, and its arguments: what a pickle reducer returns.
Reduced = tuple[Callable[..., Any], tuple[Any, ...]]

#: Dtypes that torch (2.13) unpickles: those that once had a storage class of their own.
_UNPICKLES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
}  # fmt: skip


def dumps(
    value: Any,
    *,
    out_of_band: Callable[[Any], bool] = lambda _: False,
    compact_tensors: bool = False,
) -> tuple[bytes, list[Any]]:
    """Pickle ``value``; return the bytes and the values that were left out of them.

    Raises what pickle raises for a value that it can't pickle. ``out_of_band(part)`` returns
    whether to leave that part of ``value`` out of the bytes. ``compact_tensors`` pickles a dense
    tensor detached, on the CPU, and without the rest of the storage that it is a view of; by
    default strides and ``requires_grad`` are kept.
    """
    file = io.BytesIO()
    pickler = _Pickler(file, out_of_band, compact_tensors)
    pickler.dump(value)
    return file.getvalue(), pickler.parts


def loads(data: bytes | memoryview, parts: Sequence[Any] = ()) -> Any:
    """Rebuild the value that ``dumps`` pickled; it contains the given ``parts``, not copies."""
    return _Unpickler(io.BytesIO(data), parts).load()


@dataclass(frozen=True)
class TensorMessage:
    """A value split for sending: its dense tensors, and the rest pickled as ``structure``.

    The tensors are contiguous, as a tensor transport needs them. ``devices`` has the type of the
    device of each in the value, such as ``cuda``; it may be sent from the CPU all the same.
    """

    structure: bytes
    tensors: list[Tensor]
    devices: list[str]

    @classmethod
    def of(cls, value: Any, sent_from: Container[str] = ()) -> TensorMessage:
        """Split ``value``; tensors on devices of the types ``sent_from`` stay there.

        All others are copied to the CPU. Raises whatever pickle raises for a part that can't be
        sent.
        """
        structure, tensors = dumps(value, out_of_band=_is_plain_tensor)
        devices = [tensor.device.type for tensor in tensors]
        sent = [
            tensor if device in sent_from else tensor.cpu()
            for tensor, device in zip(tensors, devices, strict=True)
        ]
        return cls(structure, [t.resolve_conj().resolve_neg().contiguous() for t in sent], devices)

    def value(self) -> Any:
        """Rebuild the value, with ``tensors`` on this process's devices of the types ``devices``.

        Where the process has no such device, they stay where they are.
        """
        placed = [
            tensor.to(device) if _has_device(device) else tensor
            for tensor, device in zip(self.tensors, self.devices, strict=True)
        ]
        return loads(self.structure, placed)


class RayArgument:
    """Wraps an argument or a result of a Ray actor's method; the receiver gets the value itself.

    Ray pickles tensors torch's way, which loses fp8: a check would blame the plane for a fault of
    rlconform. Object references within the value are left to Ray, which counts them.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> Reduced:
        return loads, dumps(self._value, out_of_band=_is_ray_reference)


def reduce_tensor(value: Any) -> Reduced | None:
    """Reduce a tensor that torch can't unpickle to CPU bytes; return None for other values."""
    if type(value) is not Tensor or value.dtype in _UNPICKLES or value.layout is not torch.strided:
        return None
    if value.is_quantized or value.is_meta:
        return None
    # a row of one element may have any stride and be called contiguous: a clone has its own
    own = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    data = own.reshape(-1).view(torch.uint8).numpy().tobytes()
    return tensor_from_bytes, (data, value.dtype, tuple(value.shape))


def tensor_from_bytes(data: bytes, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    """Build a tensor from its bytes."""
    if not data:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype).reshape(shape)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(
        self, file: io.BytesIO, out_of_band: Callable[[Any], bool], compact_tensors: bool
    ) -> None:
        super().__init__(file, protocol=5)
        self._out_of_band = out_of_band
        self._compact_tensors = compact_tensors
        self._places: dict[int, int] = {}
        self.parts: list[Any] = []

    def persistent_id(self, value: Any) -> int | None:
        if not self._out_of_band(value):
            return None
        if id(value) not in self._places:
            self._places[id(value)] = len(self.parts)
            self.parts.append(value)
        return self._places[id(value)]

    def reducer_override(self, value: Any) -> Any:
        if reduced := reduce_tensor(value):
            return reduced
        if self._compact_tensors and _is_strided(value) and not _is_compact(value):
            return value.detach().cpu().clone().__reduce_ex__(5)
        return super().reducer_override(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, parts: Sequence[Any]) -> None:
        super().__init__(file)
        self._parts = parts

    def persistent_load(self, place: int) -> Any:
        return self._parts[place]


def _has_device(kind: str) -> bool:
    """Whether this process can hold tensors on a device of a type."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return kind == "cpu" or (accelerator is not None and accelerator.type == kind)


def _is_plain_tensor(value: Any) -> bool:
    """Whether dtype, shape and bytes describe the whole value: a dense tensor of no subclass."""
    return (
        type(value) is Tensor
        and value.layout is torch.strided
        and not (value.is_nested or value.is_quantized or value.requires_grad)
    )


def _is_ray_reference(value: Any) -> bool:
    ray = sys.modules.get("ray")  # without Ray there is no reference
    return ray is not None and isinstance(value, ray.ObjectRef)


def _is_strided(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout is torch.strided and not value.is_nested


def _is_compact(tensor: Tensor) -> bool:
    """Whether the tensor is on the CPU, without grad, and has nothing else in its storage."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return whole and tensor.device.type == "cpu" and not tensor.requires_grad
