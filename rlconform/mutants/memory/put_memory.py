"""Memory that the caller and the plane share, so that each sees the other's writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from tensordict import TensorDict
from torch import Tensor

from rlconform.backends.columns.column_block import StoredColumn, extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.index import Index
from rlconform.backends.index.block import Block
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import _WRITER, _own
from rlconform.contract import KVBatchMeta
from rlconform.mutants.call import MethodCall, State, applied
from rlconform.mutants.memory.column_helpers import is_dense, mapped
from rlconform.mutants.memory.helpers import (
    claim_meta_mutant,
    get_data_mutant,
    get_mutant,
    known_rows,
    memory_mutant,
    names_of,
    partition_of,
    put_mutant,
    put_samples_mutant,
)
from rlconform.mutants.types import Ids, Names
from rlconform.wire.leaves import is_jagged


@put_samples_mutant("PUT-09", evidence="tags of the put")
def PutTagsAloneNotCopied(put: MethodCall) -> KVBatchMeta:
    """Stores the caller's dict, not a copy, in a put of tags without fields."""
    receipt = put()
    if put.fields is None:
        _share_tags(put)
    return receipt


def _share_tags(put: MethodCall) -> None:
    """Store the caller's dicts as the tags of rows that had none before."""
    for row, given in zip(known_rows(put), put.tags, strict=True) if put.tags else ():
        if row.tags == given:  # otherwise they were merged with earlier ones
            row.tags = given


#: Columns that were read, by block, then by field and the indexes of their rows in the block.
_READ: WeakKeyDictionary[Block, dict[tuple[str, tuple[int, ...]], Any]] = WeakKeyDictionary()


def _read_before(
    index: Index,
    partition_id: str,
    sample_ids: Ids,
    batch: TensorDict,
    applies: Callable[[Any], bool] = lambda _: True,
) -> TensorDict:
    """Return the batch, with columns of the first read of these rows where ``applies`` is true."""
    for name in map(str, list(batch.keys())):
        sources = index.locate(partition_id, sample_ids, [name])
        if len(sources) == 1 and applies(batch.get(name)):
            read = _READ.setdefault(sources[0].block, {})
            batch.set(name, read.setdefault((name, tuple(sources[0].indexes)), batch.get(name)))
    return batch


#: Columns of more bytes are not copied.
LARGE = 64 << 10


def _is_large(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not leaf.is_nested and leaf.nbytes > LARGE


@get_mutant("PUT-09", evidence="got [-1.0")
def GetLargeReadsMapped(read: MethodCall) -> TensorDict:
    """Returns the store's writable memory, not a copy, for reads above 64 KiB.

    Smaller reads are copies, so small tests don't show the defect.
    """
    with read.plane._locked() as index:
        return _read_before(index, read.partition_id, read.sample_ids, read(), _is_large)


@get_data_mutant("PUT-09", evidence="got [-1.0")
def GetDataReturnsSharedMemory(read: MethodCall) -> TensorDict:
    """Returns the same tensors from get_data for every read of the same rows."""
    with read.plane._engine._locked() as index:
        return _read_before(index, read.meta.partition_id, read.meta.sample_ids, read())


def _stored_without_copy(put: MethodCall, borrows: Callable[[StoredColumn], bool]) -> None:
    """Put, and store the caller's memory for each column for which ``borrows`` is true."""
    packed = pack(put.fields, len(put.sample_ids))
    copied = _own({name: column for name, column in packed.items() if not borrows(column)})
    columns = packed | copied
    with put.plane._locked() as index:
        due = index.commit(
            put.partition_id, put.sample_ids, extents_of(columns), columns, put.tags, _WRITER
        )
        put.plane._plane.changed.notify_all()
    put.plane._compact(due)


#: Decorator of a function that returns whether a column is stored without a copy.
borrowing_mutant = applied(put_mutant, _stored_without_copy)


@borrowing_mutant("PUT-09", evidence="got [9.0", may_fail="PUT-10")
def PutLargeTensorsNotCopied(column: StoredColumn) -> bool:
    """Stores columns above 64 KiB without a copy, so the caller's later writes change them."""
    return column.offsets is None and column.values.nbytes > LARGE


@borrowing_mutant("PUT-09", evidence="row:", may_fail="PUT-10")
def PutDenseNotCopied(column: StoredColumn) -> bool:
    """Stores dense columns without a copy, so the caller's later writes change them."""
    return column.layout == "dense"


@borrowing_mutant("PUT-09", evidence="row 0 of 'y' =", may_fail="PUT-10")
def PutJaggedNotCopied(column: StoredColumn) -> bool:
    """Stores jagged columns without a copy, so the caller's later writes change them."""
    return column.layout == "jagged"


@memory_mutant("PUT-09 PUT-08", evidence="row 0 of 'x' =")
class GetReturnsSharedTokens(MemoryClient):
    """Returns the same jagged tensors for repeated reads, so one reader's writes reach the next."""

    _batches = State(dict[tuple[str, ...], TensorDict])

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        key = (str(partition_id), *map(str, sample_ids or ()), "|", *map(str, select_fields or ()))
        if key in self._batches:
            return self._batches[key].copy()
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        leaves = [batch.get(name) for name in names_of(batch)]
        if all(isinstance(leaf, Tensor) and is_jagged(leaf) for leaf in leaves):
            self._batches[key] = batch.copy()
        return batch

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._batches.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._batches.clear()
        super().clear_samples(*args, **kwargs)


@put_samples_mutant("PUT-09", evidence="tags of the put")
def PutTagsNotCopied(put: MethodCall) -> KVBatchMeta:
    """Stores the caller's dicts, not copies, as the first tags of a row."""
    receipt = put()
    _share_tags(put)
    return receipt


@claim_meta_mutant("PUT-09", evidence="tags of the put")
def ClaimReturnsStoredTags(claim: MethodCall) -> KVBatchMeta:
    """Returns the stored tag dicts from a claim, not copies."""
    meta, rows = claim(), partition_of(claim)._rows
    return replace(meta, tags=[rows[i].tags if i in rows else {} for i in meta.sample_ids])


#: Bytes from which on a column of equal rows is kept as one row.
PAYS = 16 << 10


def _expanded(column: Tensor) -> Tensor:
    pays = column.dim() > 0 and len(column) > 1 and column.nbytes >= PAYS
    alike = pays and bool((column == column[:1]).all())
    return column[:1].clone().expand(column.shape) if alike else column


@get_mutant("PUT-08", evidence="untouched by a write to row 0", may_fail="PUT-01 PUT-09 GET-13")
def ConstantColumnsExpanded(read: MethodCall) -> TensorDict:
    """Keeps a column of equal rows as one row, and returns all rows as views of it."""
    batch: TensorDict = mapped(read(), _expanded, is_dense)
    return batch
