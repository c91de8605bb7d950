"""A value as what travels between ranks: its tensors, and one record of all else.

    leader    Parcel.of(value) ──▶ record, one pickle     ──▶  the tensors' shapes are known
                               ──▶ tensors, as their bytes ──▶  put_together(structure, tensors)

A tensor is never pickled with the rest: pickled, a view takes its whole storage along.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from typing import Any

import cloudpickle
import torch
from torch import Tensor


@dataclass(frozen=True)
class ErrorText:
    """An error in words: a vendor's own class may not unpickle elsewhere."""

    name: str
    message: str
    is_lookup: bool

    @classmethod
    def of(cls, error: BaseException) -> ErrorText:
        """What siblings are told of ``error``."""
        return cls(type(error).__name__, str(error), isinstance(error, LookupError))


@dataclass(frozen=True)
class Record:
    """What a sibling must know before the tensors come; it unpickles wherever torch does.

    Attributes:
        error: The leader's, in place of all else.
        tensors: dtype and shape of each tensor that follows.
        structure: The pickled value without its tensors, for ``put_together``.
    """

    error: ErrorText | None = None
    tensors: tuple[tuple[torch.dtype, tuple[int, ...]], ...] = ()
    structure: bytes = b""


@dataclass(frozen=True)
class TensorMessage:
    """All that is sent of a value, contiguous and on the CPU."""

    record: Record
    tensors: list[Tensor]

    @classmethod
    def of(cls, value: Any) -> TensorMessage:
        """The value taken apart; whatever pickle raises for a part that can't be sent."""
        file = io.BytesIO()
        pickler = _Pickler(file, protocol=5)
        pickler.dump(value)
        tensors = [each.resolve_conj().resolve_neg().cpu().contiguous() for each in pickler.tensors]
        specs = tuple((each.dtype, tuple(each.shape)) for each in tensors)
        return cls(Record(None, specs, file.getvalue()), tensors)


def put_together(structure: bytes, tensors: list[Tensor]) -> Any:
    """The value whose ``Record.structure`` and tensors these are; it keeps the tensors."""
    return _Unpickler(io.BytesIO(structure), tensors).load()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles a tensor's place among those sent, and a script's own classes by value."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.tensors: list[Tensor] = []
        self._places: dict[int, int] = {}

    def persistent_id(self, value: Any) -> int | None:
        """The place of a tensor; None for all that is pickled."""
        if not _is_plain(value):
            return None
        if id(value) not in self._places:
            self._places[id(value)] = len(self.tensors)
            self.tensors.append(value)
        return self._places[id(value)]


class _Unpickler(pickle.Unpickler):
    """Finds tensors by their places."""

    def __init__(self, file: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors

    def persistent_load(self, place: int) -> Tensor:
        """The tensor sent at that place."""
        return self._tensors[place]


def _is_plain(value: Any) -> bool:
    """Whether dtype, shape and bytes are all that there is to it: a dense tensor of no subclass."""
    return (
        type(value) is Tensor
        and value.layout is torch.strided
        and not (value.is_nested or value.is_quantized or value.requires_grad)
    )
