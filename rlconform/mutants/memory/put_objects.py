"""Object columns that a read returns changed, and leaves that are dropped, not rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, is_non_tensor, is_tensor_collection
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.column_helpers import AlteredReads
from rlconform.mutants.memory.helpers import memory_mutant
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire import is_object_column, object_column, object_rows


def with_objects(batch: Any, change: Callable[[list[Any]], list[Any]]) -> Any:
    """The batch with the values of each object column changed, and all else unchanged."""
    if not isinstance(batch, TensorDict):
        return batch
    changed = batch.copy()
    for name in map(str, batch.keys()):
        leaf = batch.get(name)
        if is_object_column(leaf):
            changed.set(name, object_column(change(object_rows(leaf, batch.batch_size[0]))))
    return changed


class AlteringObjects(MemoryClient):
    """A plane that changes the values of object columns when they are put."""

    def stored(self, values: list[Any]) -> list[Any]:
        """The values to store."""
        raise NotImplementedError

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        fields = with_objects(fields, self.stored)
        return super().put_samples(sample_ids, partition_id, fields, tags)


class _Recodes(AlteringObjects):
    """A plane that changes keys and values within objects."""

    def stored(self, values: list[Any]) -> list[Any]:
        """The values to store."""
        return [self._within(value) for value in values]

    def _within(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self.key(key): self._within(held) for key, held in value.items()}
        if isinstance(value, list):
            return self.stored(value)
        return self.value(value)

    def key(self, key: Any) -> Any:
        """The key to store in place of a dict's key."""
        return key

    def value(self, value: Any) -> Any:
        """The value to store in place of one that is neither dict nor list."""
        return value


@memory_mutant("PUT-21", evidence="to be {1: 'a'}")
class PutObjectKeysBecomeText(_Recodes):
    """Sends objects as JSON, so integer keys, such as token ids, become text."""

    def key(self, key: Any) -> Any:
        return str(key) if type(key) is int else key


@memory_mutant("PUT-21", evidence="to be 9223372036854775807")
class PutObjectIntegersAsDoubles(_Recodes):
    """Stores integers in objects as doubles, so seeds above 2**53 change."""

    def value(self, value: Any) -> Any:
        return int(float(value)) if type(value) is int else value


@memory_mutant("PUT-21", evidence="to be 'aaaa")
class PutLongTextsTruncated(_Recodes):
    """Truncates texts to 65,535 characters, because it stores their length in 16 bits."""

    def value(self, value: Any) -> Any:
        return value[: 2**16 - 1] if isinstance(value, str) else value


def _alike(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return value
    keys = dict.fromkeys(key for each in value for key in each)
    return [{key: each.get(key) for key in keys} for each in value]


@memory_mutant("PUT-21", evidence="of 'log' to be")
class GetMessagesShareKeys(AlteredReads):
    """Stores a list of dicts as columns, so each dict gets the keys of all others, as None."""

    def changed(self, leaf: Any, cells: list[tuple[str, str, str]]) -> Any:
        if not is_object_column(leaf):
            return leaf
        return object_column(_alike(value) for value in object_rows(leaf, len(cells)))


@memory_mutant("PUT-21", "WIRE-06", evidence="row 0 of 'log' to be")
class GetObjectsInStoredOrder(MemoryClient):
    """Returns object columns sorted by id, not in the order of the read."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        order = sorted(range(len(sample_ids)), key=lambda n: sample_ids[n])
        changed: TensorDict = with_objects(batch, lambda values: [values[n] for n in order])
        return changed


@memory_mutant("PUT-21", evidence="to be None")
class PutObjectTypeGuessed(AlteringObjects):
    """Converts a column to text if its first and last values are text (TQ-28)."""

    def stored(self, values: list[Any]) -> list[Any]:
        ends = values[:1] + values[-1:]
        return list(map(str, values)) if all(isinstance(end, str) for end in ends) else values


@memory_mutant("PUT-21", "PUT-13", "PUT-14", "CLEAR-04", evidence="None in a column")
class PutNoneRefused(AlteringObjects):
    """Rejects object columns that contain None, because it has no encoding for it (TQ-22)."""

    def stored(self, values: list[Any]) -> list[Any]:
        if None in values:
            raise TypeError("None in a column")
        return values


@memory_mutant("PUT-21", evidence="row 0 of 'log'")
class PutBytesBecomeNumbers(AlteringObjects):
    """Stores bytes as a list of numbers, because they have a length and items (TQ-21)."""

    def stored(self, values: list[Any]) -> list[Any]:
        return [list(value) if isinstance(value, bytes) else value for value in values]


@memory_mutant("PUT-21", "PUT-13", "CLEAR-04", evidence="to be {}")
class PutEmptyDictBecomesNone(AlteringObjects):
    """Stores empty dicts as no bytes, which it reads as None (NR-11)."""

    def stored(self, values: list[Any]) -> list[Any]:
        return [None if value == {} else value for value in values]


@memory_mutant("PUT-21", "WIRE-06", evidence="to be")
class PutObjectsBesideTensorsEmptied(MemoryClient):
    """Replaces objects with None in batches that also have tensors (NR-12)."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        leaves = [] if not isinstance(fields, TensorDict) else list(fields.values())
        if any(isinstance(leaf, Tensor) for leaf in leaves):
            fields = with_objects(fields, lambda values: [None] * len(values))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-21", evidence="row 0 of 'log'")
class GetOneRowReturnsFirstObject(MemoryClient):
    """Returns the object of the first row of a put for a read of any one row of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._put: dict[tuple[str, str], str] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        self._put.update(
            {(partition_id, i): sample_ids[0] for i in sample_ids} if receipt.fields else {}
        )
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        objects = [n for n in select_fields if is_object_column(batch.get(n, None))]
        if len(sample_ids) == 1 and objects:
            first = self._put.get((partition_id, sample_ids[0]), sample_ids[0])
            batch.update(super().get_samples([first], partition_id, objects))
        return batch


def _is_batch(leaf: Any) -> bool:
    """Whether a leaf is a TensorDict or a tensorclass of tensors."""
    return is_tensor_collection(leaf) and not is_non_tensor(leaf)


@memory_mutant("PUT-25", evidence="a leaf that is no column")
class PutNestedLeavesDropped(MemoryClient):
    """Silently drops a leaf that is a batch itself (NR-13)."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict):
            names = list(map(str, fields.keys()))
            fields = fields.exclude(*[n for n in names if _is_batch(fields.get(n))])
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-25", evidence="a leaf that is no column")
class PutSparseValuesOnly(MemoryClient):
    """Stores the values of a sparse leaf as a dense column, without their indexes."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict):
            fields = fields.copy()
            for name in map(str, list(fields.keys())):
                leaf = fields.get(name)
                if isinstance(leaf, Tensor) and leaf.layout is torch.sparse_coo:
                    fields.set(name, leaf.coalesce().values())
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-25", evidence="of shape (1,)")
class PutStridedNestedPadded(MemoryClient):
    """Pads nested leaves with strided layout, so rows of unequal length become longer."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict):
            fields = fields.copy()
            for name in map(str, list(fields.keys())):
                leaf = fields.get(name)
                if isinstance(leaf, Tensor) and leaf.is_nested and leaf.layout is torch.strided:
                    fields.set(name, leaf.to_padded_tensor(0))
        return super().put_samples(sample_ids, partition_id, fields, tags)
