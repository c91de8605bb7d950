"""Calls and answers on their way to another process, with columns that Ray alone would lose.

Ray leaves tensors to torch's pickling, which can't bring back fp8 and wide unsigned ones: what a
check then saw broken would be the kit's own transport.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable
from typing import Any

import cloudpickle

from rlconform.wire import reduce_tensor


class RayArgument:
    """A value as an argument or a result of a Ray actor's method; it arrives as the value itself.

    Object references within it go to Ray, which counts who holds them.
    """

    def __init__(self, value: Any) -> None:
        self._value = value

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        file = io.BytesIO()
        pickler = _Pickler(file, protocol=5)
        pickler.dump(self._value)
        return _arrived, (file.getvalue(), pickler.references)


def _arrived(data: bytes, references: list[Any]) -> Any:
    return _Unpickler(io.BytesIO(data), references).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.references: list[Any] = []

    def reducer_override(self, value: Any) -> Any:
        return reduce_tensor(value) or super().reducer_override(value)

    def persistent_id(self, value: Any) -> int | None:
        ray = sys.modules.get("ray")  # without it there is no reference
        if ray is None or not isinstance(value, ray.ObjectRef):
            return None
        self.references.append(value)
        return len(self.references) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, references: list[Any]) -> None:
        super().__init__(file)
        self._references = references

    def persistent_load(self, place: int) -> Any:
        return self._references[place]
