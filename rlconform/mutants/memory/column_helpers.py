"""Decorators and functions for mutants that alter columns."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import State, applied
from rlconform.mutants.memory.helpers import get_samples_mutant, put_samples_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows
from rlconform.wire.leaves import is_jagged, jagged_parts
from rlconform.wire.ragged_rows import RaggedRows


def is_dense(leaf: Tensor) -> bool:
    """Whether the leaf is an ordinary tensor."""
    return leaf.layout is torch.strided and not leaf.is_nested


def is_column(leaf: Tensor) -> bool:
    """Whether the leaf is a dense or jagged column."""
    return is_jagged(leaf) or is_dense(leaf)


def mapped(
    batch: Any, change: Callable[[Tensor], Tensor], where: Callable[[Tensor], bool] = is_column
) -> Any:
    """Return the batch with ``change`` applied to the tensors for which ``where`` is true."""
    if not isinstance(batch, TensorDict):
        return batch
    changed = batch.copy()
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if isinstance(leaf, Tensor) and where(leaf):
            changed.set(name, change(leaf))
    return changed


def with_objects(batch: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """Return the batch with ``change`` applied to the values of each object column."""
    if not isinstance(batch, TensorDict):
        return batch
    changed = batch.copy()
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if is_object_column(leaf):
            changed.set(name, object_column(change(object_rows(leaf, batch.batch_size[0]))))
    return changed


# Decorators of a function that alters each column that is put or read.
put_column_mutant = applied(
    put_samples_mutant, lambda put, stored: put(fields=mapped(put.fields, stored))
)
put_jagged_mutant = applied(
    put_samples_mutant, lambda put, stored: put(fields=mapped(put.fields, stored, is_jagged))
)
read_column_mutant = applied(get_samples_mutant, lambda read, returned: mapped(read(), returned))
read_jagged_mutant = applied(
    get_samples_mutant, lambda read, returned: mapped(read(), returned, is_jagged)
)


class PutOrigin(NamedTuple):
    """The origin of a value: the number of its put, and how many values the put column has."""

    put: int
    values: int


#: The origin of a value that another client put.
UNKNOWN = PutOrigin(-1, 0)


class TracksPuts(MemoryClient):
    """A plane that returns ``changed(leaf, origins)`` in place of each column of tensors."""

    _origins = State(dict[tuple[str, str, str], PutOrigin])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        meta = super().put_samples(sample_ids, partition_id, fields, tags)
        number = len(self._origins)
        for name, leaf in () if fields is None else fields.items():
            for sample_id in sample_ids:
                self._origins[partition_id, name, sample_id] = PutOrigin(number, values_in(leaf))
        return meta

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            origins = [self._origins.get((partition_id, name, i), UNKNOWN) for i in sample_ids]
            if isinstance(leaf, Tensor):
                batch.set(name, self.changed(leaf, origins))
        return batch

    @abstractmethod
    def changed(self, leaf: Tensor, origins: list[PutOrigin]) -> Tensor:
        """Return the column to read in place of ``leaf``, whose rows have these ``origins``."""


def values_in(leaf: Any) -> int:
    """Return the number of values in a column of tensors, or 0 for a column of objects."""
    if not isinstance(leaf, Tensor):
        return 0
    return leaf.values().numel() if leaf.layout is torch.jagged else leaf.numel()


def through_one_buffer(buffer: bytearray, fields: Any) -> Any:
    """Return the batch with each dense column copied through the shared buffer."""

    def sent(leaf: Tensor) -> Tensor:
        plain = leaf.detach().cpu().resolve_conj().resolve_neg()
        raw = plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        buffer[: len(raw)] = raw
        time.sleep(0)  # other threads run, as during a codec in C
        return torch.frombuffer(buffer[: len(raw)], dtype=leaf.dtype).reshape(leaf.shape)

    return mapped(fields, sent, lambda leaf: is_dense(leaf) and bool(leaf.numel()))


def jagged(rows: list[Tensor]) -> Tensor:
    """Return the rows as a jagged column, even if all rows have the same length."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def jagged_in(
    memory: Tensor, rows: RaggedRows, offsets: Tensor, lengths: Tensor | None = None
) -> Tensor:
    """Return the rows as a jagged column whose tokens are at these offsets of ``memory``."""
    return torch.nested.nested_tensor_from_jagged(
        memory, offsets, lengths, min_seqlen=rows.shortest, max_seqlen=rows.longest
    )


def from_offsets(leaf: Tensor) -> Tensor:
    """Return the column without its maximum length; torch pads it to the sum of the lengths."""
    values, rows = jagged_parts(leaf)
    return torch.nested.nested_tensor_from_jagged(values, rows.offsets)
