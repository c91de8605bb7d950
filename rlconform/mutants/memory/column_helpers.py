"""Base classes and functions for mutants that alter columns."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire.leaves import is_jagged, jagged_parts


def nest(rows: list[torch.Tensor]) -> torch.Tensor:
    """Rows as a jagged column, even if all have the same length."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


class AlteredReads(MemoryClient):
    """A plane that returns ``changed(leaf, ...)`` in place of each column."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name, leaf in list(batch.items()):
            batch.set(name, self.changed(leaf, [(partition_id, name, i) for i in sample_ids]))
        return batch

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        """The column to return; ``cells`` lists the partition, field and row of each row."""
        raise NotImplementedError


def cells_of(leaf: Any) -> int:
    """The number of values in a column; 0 for objects."""
    if not isinstance(leaf, torch.Tensor):
        return 0
    return leaf.values().numel() if leaf.layout is torch.jagged else leaf.numel()


class TracksPuts(AlteredReads):
    """A plane that records the put of each value, and the number of cells in its column."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        meta = super().put_samples(sample_ids, partition_id, fields, tags)
        notes = self.__dict__.setdefault("_notes", {})
        number = len(notes)
        for name, leaf in () if fields is None else fields.items():
            for sample_id in sample_ids:
                notes[partition_id, name, sample_id] = number, cells_of(leaf)
        return meta

    def noted(self, cell: tuple[str, str, str]) -> tuple[int, int]:
        """The number of the put, and the number of cells in its column."""
        came: tuple[int, int] = self.__dict__["_notes"][cell]
        return came


def is_jagged_tensor(leaf: Any) -> bool:
    """Whether the leaf of a batch is a jagged column."""
    return isinstance(leaf, torch.Tensor) and leaf.is_nested


def through_one_buffer(buffer: bytearray, fields: TensorDict) -> TensorDict:
    """The batch, with each dense column read back from the shared buffer."""
    sent = fields.copy()
    for name in map(str, fields.keys()):
        leaf = fields.get(name)
        if isinstance(leaf, torch.Tensor) and not leaf.is_nested and leaf.numel():
            plain = leaf.detach().cpu().resolve_conj().resolve_neg()
            raw = plain.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
            buffer[: len(raw)] = raw
            time.sleep(0)  # other threads run, as during a codec in C
            held = torch.frombuffer(buffer[: len(raw)], dtype=leaf.dtype)
            sent.set(name, held.reshape(leaf.shape))
    return sent


def is_dense(leaf: Tensor) -> bool:
    """Whether the leaf is an ordinary tensor."""
    return leaf.layout is torch.strided and not leaf.is_nested


def mapped(batch: TensorDict, change: Callable[[Tensor], Tensor]) -> TensorDict:
    """The batch with ``change`` applied to each dense or jagged tensor, and all else unchanged."""
    changed = batch.copy()
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if isinstance(leaf, Tensor) and (is_jagged(leaf) or is_dense(leaf)):
            changed.set(name, change(leaf))
    return changed


class Altering(MemoryClient):
    """A plane that changes every dense or jagged tensor when it is put or read."""

    def stored(self, leaf: Tensor) -> Tensor:
        """The tensor to store."""
        return leaf

    def given(self, leaf: Tensor) -> Tensor:
        """The tensor that a read returns for a stored one."""
        return leaf

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        kept = mapped(fields, self.stored) if isinstance(fields, TensorDict) else fields
        return super().put_samples(sample_ids, partition_id, kept, tags)

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        return mapped(super().get_samples(sample_ids, partition_id, select_fields), self.given)


def jagged(rows: list[Tensor]) -> Tensor:
    """The rows as a jagged column."""
    return torch.nested.nested_tensor(rows, layout=torch.jagged)


def from_offsets(leaf: Tensor) -> Tensor:
    """The same rows as a column without a maximum length: torch pads it to their sum."""
    values, rows = jagged_parts(leaf)
    return torch.nested.nested_tensor_from_jagged(values, rows.offsets)
