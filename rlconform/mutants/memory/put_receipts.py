"""Receipts that name other ids or fields than the put wrote, and wrong empty puts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State
from rlconform.mutants.memory.helpers import known_rows, memory_mutant, names_of, put_samples_mutant
from rlconform.mutants.types import Ids, Names


@put_samples_mutant("PUT-14", evidence="sample_ids on the receipt")
def ReceiptIdsSorted(put: MethodCall) -> KVBatchMeta:
    """Sorts the ids on the receipt."""
    receipt = put()
    return replace(receipt, sample_ids=sorted(receipt.sample_ids))


@put_samples_mutant("PUT-14", evidence="fields written by this put")
def ReceiptNamesAllFields(put: MethodCall) -> KVBatchMeta:
    """Lists every field of the rows on the receipt, not only those of the put."""
    receipt = put()
    rows = known_rows(put) if receipt.fields else []
    return replace(receipt, fields=sorted(rows[0].fields)) if rows else receipt


@put_samples_mutant("PUT-14", evidence="fields written by this put")
def ReceiptNamesTensorsOnly(put: MethodCall) -> KVBatchMeta:
    """Lists only tensor fields on the receipt, so a reader that uses it misses the objects."""
    receipt = put()
    tensors = [name for name in receipt.fields if torch.is_tensor(put.fields.get(name))]
    return replace(receipt, fields=tensors)


@memory_mutant("PUT-18", evidence="the same before: True")
class PutEmptyCounted(MemoryClient):
    """Counts an empty put, so the partition is not consumed until another put."""

    _noted = State(set[str])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        (self._noted.discard if sample_ids else self._noted.add)(partition_id)
        return receipt

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        consumed = super().check_consumption_status(partition_id, task_names)
        return consumed and partition_id not in self._noted


@put_samples_mutant("PUT-18", evidence="needs fields or tags")
def PutEmptyTagsRefused(put: MethodCall) -> KVBatchMeta:
    """Rejects an empty put of tags, because it treats an empty list of tags as None."""
    if put.fields is None and not put.tags:
        raise ValueError("a put needs fields or tags")
    return put()


@put_samples_mutant("PUT-18", evidence="holds torch.float32")
def PutEmptySetsDtype(put: MethodCall) -> KVBatchMeta:
    """Sets a field's dtype from a put without rows, which is float32 by default."""
    receipt = put()
    tensors = {name: put.fields.get(name) for name in names_of(put.fields)}
    for name, leaf in tensors.items():
        key = (put.partition_id, name)
        if torch.is_tensor(leaf) and not put.sample_ids:
            put.notes[key] = leaf.dtype
        elif torch.is_tensor(leaf) and put.notes.get(key, leaf.dtype) != leaf.dtype:
            put.plane.clear_samples(put.sample_ids, put.partition_id)
            raise ValueError(f"{name!r} holds {put.notes[key]}")
    return receipt


@put_samples_mutant("PUT-18", evidence="partition_id of an empty put")
def ReceiptOfEmptyPutWithoutPartition(put: MethodCall) -> KVBatchMeta:
    """Returns a receipt without a partition for an empty put."""
    receipt = put()
    return receipt if put.sample_ids else replace(receipt, partition_id="")


@memory_mutant("GET-13", evidence="not to be readable", may_fail="CLEAR-03")
class ReceiptsListWhatNoneClears(MemoryClient):
    """Clears by None the ids of the receipts that it returned: the same lists as the callers'."""

    _receipts = State(dict[str, list[Ids]])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        self._receipts.setdefault(partition_id, []).append(receipt.sample_ids)
        return receipt

    def clear_samples(self, sample_ids: Ids | None, partition_id: str) -> None:
        if sample_ids is None:
            put = self._receipts.pop(partition_id, [])
            sample_ids = [one for ids in put for one in ids if isinstance(one, str)]
        super().clear_samples(sample_ids, partition_id)
