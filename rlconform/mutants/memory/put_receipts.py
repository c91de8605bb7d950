"""Receipts that name other ids or fields than the put wrote, and wrong empty puts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.helpers import Writing, held, memory_mutant, names_of
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


@memory_mutant("PUT-14", evidence="sample_ids on the receipt")
class ReceiptIdsSorted(MemoryClient):
    """Sorts the ids on the receipt."""

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        receipt = super().put_samples(*args, **kwargs)
        return replace(receipt, sample_ids=sorted(receipt.sample_ids))


@memory_mutant("PUT-14", evidence="fields written by this put")
class ReceiptNamesAllFields(MemoryClient):
    """Lists every field of the rows on the receipt, not only those of the put."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        row = held(self, partition_id)._rows.get(sample_ids[0]) if sample_ids else None
        return replace(receipt, fields=sorted(row.fields)) if row and receipt.fields else receipt


@memory_mutant("PUT-14", evidence="fields written by this put")
class ReceiptNamesTensorsOnly(MemoryClient):
    """Lists only tensor fields on the receipt, so a reader that uses it misses the objects."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        named = receipt.fields or []
        tensors = [n for n in named if fields is not None and torch.is_tensor(fields.get(n))]
        return replace(receipt, fields=tensors)


@memory_mutant("PUT-18", evidence="the same before: True")
class PutEmptyCounted(MemoryClient):
    """Counts an empty put, so the partition is not consumed until another put."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._noted: set[str] = set()

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        (self._noted.discard if sample_ids else self._noted.add)(partition_id)
        return receipt

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        consumed = super().check_consumption_status(partition_id, task_names)
        return consumed and partition_id not in self._noted


@memory_mutant("PUT-18", evidence="needs fields or tags")
class PutEmptyTagsRefused(MemoryClient):
    """Rejects an empty put of tags, because it treats an empty list of tags as None."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if fields is None and not tags:
            raise ValueError("a put needs fields or tags")
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-18", evidence="holds torch.float32")
class PutEmptySetsDtype(Writing):
    """Sets a field's dtype from a put without rows, which is float32 by default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dtypes: dict[tuple[str, str], torch.dtype] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name in names_of(fields):
            leaf = fields.get(name) if fields is not None else None
            key = (partition_id, name)
            if isinstance(leaf, torch.Tensor) and not sample_ids:
                self._dtypes[key] = leaf.dtype
            elif isinstance(leaf, torch.Tensor) and self._dtypes.get(key, leaf.dtype) != leaf.dtype:
                self.forget(sample_ids, partition_id)
                raise ValueError(f"{name!r} holds {self._dtypes[key]}")
        return receipt


@memory_mutant("PUT-18", evidence="partition_id of an empty put")
class ReceiptOfEmptyPutWithoutPartition(MemoryClient):
    """Returns a receipt without a partition for an empty put."""

    def put_samples(self, sample_ids: Ids, *args: Any, **kwargs: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, *args, **kwargs)
        return receipt if sample_ids else replace(receipt, partition_id="")
