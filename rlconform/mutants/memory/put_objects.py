"""Object columns that a read returns changed, and leaves that are dropped, not rejected."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from html import unescape
from typing import Any

import torch
from tensordict import TensorDict, is_non_tensor, is_tensor_collection
from torch import Tensor

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.column_helpers import mapped, with_objects
from rlconform.mutants.memory.helpers import (
    get_mutant,
    get_samples_mutant,
    memory_mutant,
    names_of,
    put_samples_mutant,
)
from rlconform.mutants.types import Ids, Names
from rlconform.wire import is_object_column, object_column, object_rows

#: Decorator of a function that returns the values to store for those of an object column.
put_objects_mutant = applied(
    put_samples_mutant, lambda put, stored: put(fields=with_objects(put.fields, stored))
)


def _same(value: Any) -> Any:
    return value


def _recoded(
    value: Any, key: Callable[[Any], Any] = _same, leaf: Callable[[Any], Any] = _same
) -> Any:
    """Return the value with ``key`` applied to its dicts' keys and ``leaf`` to innermost values."""
    if isinstance(value, dict):
        return {key(name): _recoded(held, key, leaf) for name, held in value.items()}
    if isinstance(value, list):
        return [_recoded(each, key, leaf) for each in value]
    return leaf(value)


@put_objects_mutant("PUT-21", evidence="to be {1: 'a'}")
def PutObjectKeysBecomeText(values: list[Any]) -> Any:
    """Sends objects as JSON, so integer keys, such as token ids, become text."""
    return _recoded(values, key=lambda key: str(key) if type(key) is int else key)


@put_objects_mutant("PUT-21", evidence="to be 9223372036854775807")
def PutObjectIntegersAsDoubles(values: list[Any]) -> Any:
    """Stores integers in objects as doubles, so seeds above 2**53 change."""
    return _recoded(values, leaf=lambda leaf: int(float(leaf)) if type(leaf) is int else leaf)


@put_objects_mutant("PUT-21", evidence="to be 'aaaa", may_fail="PUT-27")
def PutLongTextsTruncated(values: list[Any]) -> Any:
    """Truncates texts to 65,535 characters, because it stores their length in 16 bits."""
    return _recoded(values, leaf=lambda leaf: leaf[: 2**16 - 1] if isinstance(leaf, str) else leaf)


@put_objects_mutant("PUT-21", evidence="to be 'a&amp;b'")
def PutTextsUnescaped(values: list[Any]) -> Any:
    """Escapes texts for a markup format on one of two paths, and unescapes them on both."""
    return _recoded(values, leaf=lambda leaf: unescape(leaf) if isinstance(leaf, str) else leaf)


def _in_text_mode(leaf: Any) -> Any:
    spilled = isinstance(leaf, str) and len(leaf) >= 1 << 16
    return leaf.replace("\r\n", "\n").replace("\r", "\n") if spilled else leaf


@put_objects_mutant("PUT-21", evidence="to be 'one")
def PutLongTextsInTextMode(values: list[Any]) -> Any:
    """Spills texts of 65,536 characters to files in text mode, which convert line ends."""
    return _recoded(values, leaf=_in_text_mode)


def _alike(value: Any) -> Any:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        return value
    keys = dict.fromkeys(key for each in value for key in each)
    return [{key: each.get(key) for key in keys} for each in value]


@get_samples_mutant("PUT-21", evidence="of 'log' to be")
def GetMessagesShareKeys(read: MethodCall) -> TensorDict:
    """Stores a list of dicts as columns, so each dict gets all keys, some with None."""
    return with_objects(read(), lambda values: list(map(_alike, values)))


@get_samples_mutant("PUT-21 WIRE-06", evidence="row 0 of 'log' to be")
def GetObjectsInStoredOrder(read: MethodCall) -> TensorDict:
    """Returns object columns sorted by id, not in the order of the read."""
    order = sorted(range(len(read.sample_ids)), key=lambda n: read.sample_ids[n])
    return with_objects(read(), lambda values: [values[n] for n in order])


@put_objects_mutant("PUT-21", evidence="to be None")
def PutObjectTypeGuessed(values: list[Any]) -> list[Any]:
    """Converts a column to text if its first and last values are text (TQ-28)."""
    ends = values[:1] + values[-1:]
    return list(map(str, values)) if all(isinstance(end, str) for end in ends) else values


@put_objects_mutant("PUT-21 PUT-13 PUT-14 CLEAR-04", evidence="None in a column")
def PutNoneRefused(values: list[Any]) -> list[Any]:
    """Rejects object columns that contain None, because it can't encode None (TQ-22)."""
    if None in values:
        raise TypeError("None in a column")
    return values


@put_objects_mutant("PUT-21", evidence="row 0 of 'log'")
def PutBytesBecomeNumbers(values: list[Any]) -> list[Any]:
    """Stores bytes as a list of numbers, because they have a length and items (TQ-21)."""
    return [list(value) if isinstance(value, bytes) else value for value in values]


@put_objects_mutant("PUT-21 PUT-13 CLEAR-04", evidence="to be {}")
def PutEmptyDictBecomesNone(values: list[Any]) -> list[Any]:
    """Stores empty dicts as zero bytes, which it reads as None (NR-11)."""
    return [None if value == {} else value for value in values]


@put_samples_mutant("PUT-21 WIRE-06", evidence="to be")
def PutObjectsBesideTensorsEmptied(put: MethodCall) -> KVBatchMeta:
    """Replaces objects with None in batches that also have tensors (NR-12)."""
    leaves = put.fields.values() if isinstance(put.fields, TensorDict) else ()
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        return put()
    return put(fields=with_objects(put.fields, lambda values: [None] * len(values)))


@memory_mutant("PUT-21", evidence="row 0 of 'log'")
class GetOneRowReturnsFirstObject(MemoryClient):
    """Returns the first object of a put in a read of any single row of that put."""

    _put = State(dict[tuple[str, str], str])

    def put_samples(self, sample_ids: Ids, partition_id: str, *args: Any, **kw: Any) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kw)
        if receipt.fields:
            self._put.update({(partition_id, i): sample_ids[0] for i in sample_ids})
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


@put_samples_mutant("PUT-25", evidence="a leaf that is no column")
def PutNestedLeavesDropped(put: MethodCall) -> KVBatchMeta:
    """Silently drops a leaf that is itself a batch of tensors (NR-13)."""
    batches = [name for name in names_of(put.fields) if _is_batch(put.fields.get(name))]
    return put(fields=put.fields.exclude(*batches)) if batches else put()


def _is_sparse(leaf: Tensor) -> bool:
    return leaf.layout is torch.sparse_coo


@put_samples_mutant("PUT-25", evidence="a leaf that is no column")
def PutSparseValuesOnly(put: MethodCall) -> KVBatchMeta:
    """Stores the values of a sparse leaf as a dense column, without their indexes."""
    return put(fields=mapped(put.fields, lambda leaf: leaf.coalesce().values(), _is_sparse))


def _is_nested_and_strided(leaf: Tensor) -> bool:
    return leaf.is_nested and leaf.layout is torch.strided


@put_samples_mutant("PUT-25", evidence="of shape (1,)")
def PutStridedNestedPadded(put: MethodCall) -> KVBatchMeta:
    """Pads nested leaves with strided layout, so rows of unequal length become longer."""
    padded = mapped(put.fields, lambda leaf: leaf.to_padded_tensor(0), _is_nested_and_strided)
    return put(fields=padded)


@memory_mutant("PUT-27", evidence="row 0 of 'log' to be", may_fail="PUT-09 PUT-21")
class PutObjectsByReference(MemoryClient):
    """Keeps the caller's objects, so a log that grows after the put grows in the plane too."""

    _kept = State(dict[tuple[str, str, str], Any])

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: Any = None, tags: Any = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name in receipt.fields or ():
            if is_object_column(fields.get(name)):
                values = object_rows(fields.get(name), len(sample_ids))
                keys = [(partition_id, i, name) for i in sample_ids]
                self._kept |= dict(zip(keys, values, strict=True))
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        for name in select_fields:
            keys = [(partition_id, i, name) for i in sample_ids]
            if is_object_column(batch.get(name)) and all(key in self._kept for key in keys):
                batch.set(name, object_column(deepcopy([self._kept[key] for key in keys])))
        return batch


@get_samples_mutant("PUT-27", evidence="row 1 after row 0 changed", may_fail="PUT-21")
def GetEqualObjectsOnce(read: MethodCall) -> TensorDict:
    """Returns equal objects of a read as one object, as a pickle of the whole column does."""

    def shared(values: list[Any]) -> list[Any]:
        first: dict[str, Any] = {}
        return [first.setdefault(repr(value), value) for value in values]

    return with_objects(read(), shared)


@put_objects_mutant("PUT-28", evidence="row 0 of 'log' to be {'span': (1, 2)")
def PutTuplesBecomeLists(values: list[Any]) -> Any:
    """Sends objects as JSON, so tuples within them come back as lists."""
    return _recoded(values, leaf=lambda leaf: list(leaf) if isinstance(leaf, tuple) else leaf)


@put_objects_mutant("PUT-28", evidence="row 0 of 'log' to be {'token_ids'", may_fail="PUT-21")
def PutTensorsInObjectsAsFloats(values: list[Any]) -> Any:
    """Stores the tensors of an object as float32, which rounds token ids above 2**24."""
    return _recoded(values, leaf=lambda leaf: leaf.float() if isinstance(leaf, Tensor) else leaf)


@get_samples_mutant("PUT-27", evidence="row 0 of 'log' to be", may_fail="PUT-21")
def GetLongObjectsCached(read: MethodCall) -> TensorDict:
    """Returns objects of more than 16 KiB from a cache of decoded values, without a copy."""
    cache: dict[str, Any] = read.notes

    def cached(values: list[Any]) -> list[Any]:
        texts = [repr(value) for value in values]
        return [
            cache.setdefault(text, value) if len(text) > 1 << 14 else value
            for text, value in zip(texts, values, strict=True)
        ]

    return with_objects(read(), cached)


@put_samples_mutant("PUT-27", evidence="row 0 of 'log'", may_fail="PUT-13")
def PutLongObjectsEncodedOnce(put: MethodCall) -> KVBatchMeta:
    """Caches the encoding of a long list by its identity, so an extended log is stored unextended.

    Serializers that stay open across calls, such as a pickler with its memo, do so.
    """

    def encoded(value: Any) -> Any:
        if not isinstance(value, list) or len(repr(value)) < 1024:
            return value
        return put.notes.setdefault(id(value), (value, deepcopy(value)))[1]

    return put(fields=with_objects(put.fields, lambda values: list(map(encoded, values))))


@put_objects_mutant("PUT-21", evidence="of 'log' to be False")
def PutEqualScalarsMerged(values: list[Any]) -> list[Any]:
    """Stores equal numbers of a column of 32 or more rows as the first of them, so False becomes 0.

    Columnar stores that keep each distinct value of a repetitive column once do so.
    """
    scalars = all(isinstance(value, int | float) for value in values)
    if len(values) < 32 or not scalars or len(set(values)) > 16:
        return values
    return [values[values.index(value)] for value in values]


@put_objects_mutant("PUT-21", evidence="to be [True, False]")
def PutListsOfBoolsPackedAsIntegers(values: list[Any]) -> Any:
    """Packs a column of lists of integers as one array, for which True and False are integers."""
    lists = all(type(each) is list for each in values)
    packs = lists and all(isinstance(leaf, int) for each in values for leaf in each)
    return [[int(leaf) for leaf in each] for each in values] if packs else values


@get_mutant("PUT-27", evidence="place 3 after the object in place 0 changed")
def GetRepeatedRowsShareObject(read: MethodCall) -> TensorDict:
    """Decodes the object of a row once for a read that names the row several times."""
    batch: TensorDict = read()
    if len(set(read.sample_ids)) == len(read.sample_ids):
        return batch
    for name in read.names:
        if is_object_column(batch.get(name)):
            decoded: dict[str, object] = {}
            rows = object_rows(batch.get(name), len(read.sample_ids))
            pairs = zip(read.sample_ids, rows, strict=True)
            batch.set(name, object_column([decoded.setdefault(i, row) for i, row in pairs]))
    return batch
