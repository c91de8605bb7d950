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
from rlconform.backends.memory.engine import _WRITER, MemoryEngine, _own
from rlconform.contract import KVBatchMeta
from rlconform.mutants.memory.helpers import engine_mutant, held, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Ids, MaybeBatch, MaybeTags, Names
from rlconform.wire.leaves import is_jagged


@memory_mutant("PUT-09", evidence="tags of the put")
class PutTagsAloneNotCopied(MemoryClient):
    """Stores the caller's dict, not a copy, in a put of tags without fields."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if fields is None and tags is not None:
            with self._engine._locked() as index:  # type: ignore[attr-defined]
                rows = rows_in(index, partition_id, sample_ids)
                for row, given in zip(rows, tags, strict=True):
                    if row.tags == given:  # otherwise they were merged with earlier ones
                        row.tags = given
        return receipt


#: Columns that were read, by block, then by field and the indexes of their rows in the block.
_READ: WeakKeyDictionary[Block, dict[tuple[str, tuple[int, ...]], Any]] = WeakKeyDictionary()


def _read_before(
    index: Index,
    partition_id: str,
    sample_ids: Ids,
    batch: TensorDict,
    applies: Callable[[Any], bool] = lambda _: True,
) -> TensorDict:
    """The batch; columns for which ``applies`` are those of the first read of the same rows."""
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


@engine_mutant("PUT-09", evidence="got [-1.0")
class GetLargeReadsMapped(MemoryEngine):
    """Returns the store's writable memory, not a copy, for reads above 64 KiB (Ray maps too).

    Smaller reads are copies, so small tests don't show it.
    """

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        with self._locked() as index:
            batch = super().get(partition_id, sample_ids, names)
            return _read_before(index, partition_id, sample_ids, batch, _is_large)


@memory_mutant("PUT-09", evidence="got [-1.0")
class GetDataReturnsSharedMemory(MemoryClient):
    """Returns the same tensors from get_data for every read of the same rows."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        engine = self._engine
        assert isinstance(engine, MemoryEngine), "the plane is in this process"
        with engine._locked() as index:
            batch = super().get_data(meta, select_fields)
            return _read_before(index, meta.partition_id, meta.sample_ids, batch)


def _is_small(column: StoredColumn) -> bool:
    return column.offsets is not None or column.values.nbytes <= LARGE


@engine_mutant("PUT-09", evidence="got [9.0", may_fail=("PUT-10",))
class PutLargeTensorsNotCopied(MemoryEngine):
    """Stores columns above 64 KiB without a copy, so the caller's later writes change them."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        packed = pack(fields, len(sample_ids))
        parcel = packed | _own({n: column for n, column in packed.items() if _is_small(column)})
        with self._locked() as index:
            due = index.commit(partition_id, sample_ids, extents_of(parcel), parcel, tags, _WRITER)
            self._plane.changed.notify_all()
        self._compact(due)


class BorrowingEngine(MemoryEngine):
    """An engine that stores columns of one layout without a copy."""

    borrows = "dense"

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        packed = pack(fields, len(sample_ids))
        parcel = {
            name: column
            if column.layout == self.borrows
            else replace(column, values=column.values.copy())
            for name, column in packed.items()
        }
        with self._locked() as index:
            index.commit(partition_id, sample_ids, extents_of(parcel), parcel, tags, "")
            self._plane.changed.notify_all()


@memory_mutant("PUT-09", evidence="row:", may_fail=("PUT-10",))
class PutDenseNotCopied(MemoryClient):
    """Stores dense columns without a copy, so the caller's later writes change them."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = BorrowingEngine(None, bootstrap)


class JaggedBorrowingEngine(BorrowingEngine):
    """An engine that stores the tokens of jagged columns without a copy."""

    borrows = "jagged"


@memory_mutant("PUT-09", evidence="row 0 of 'y' =", may_fail=("PUT-10",))
class PutJaggedNotCopied(MemoryClient):
    """Stores jagged columns without a copy, so the caller's later writes change them."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = JaggedBorrowingEngine(None, bootstrap)


class Remembering(MemoryClient):
    """A plane that returns the same batch, not a copy, until the next put or clear."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._batches: dict[tuple[str, ...], TensorDict] = {}

    def remembers(self, batch: TensorDict) -> bool:
        """Whether to return this batch again."""
        raise NotImplementedError

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        key = (str(partition_id), *map(str, sample_ids or ()), "|", *map(str, select_fields or ()))
        if key in self._batches:
            return self._batches[key].copy()
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if self.remembers(batch):
            self._batches[key] = batch.copy()
        return batch

    def put_samples(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        self._batches.clear()
        return super().put_samples(*args, **kwargs)

    def clear_samples(self, *args: Any, **kwargs: Any) -> None:
        self._batches.clear()
        super().clear_samples(*args, **kwargs)


@memory_mutant("PUT-09", "PUT-08", evidence="row 0 of 'x' =")
class GetReturnsSharedTokens(Remembering):
    """Returns the same jagged tensors for repeated reads, so one reader's writes reach the next."""

    def remembers(self, batch: TensorDict) -> bool:
        leaves = [batch.get(str(name)) for name in batch.keys()]  # noqa: SIM118
        return all(isinstance(leaf, Tensor) and is_jagged(leaf) for leaf in leaves)


@memory_mutant("PUT-09", evidence="tags of the put")
class PutTagsNotCopied(MemoryClient):
    """Stores the caller's dicts, not copies, as the first tags of a row."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        rows = held(self, partition_id)._rows
        for sample_id, row in zip(sample_ids, tags, strict=True) if tags else ():
            if rows[sample_id].tags == row:
                rows[sample_id].tags = row
        return receipt


@memory_mutant("PUT-09", evidence="tags of the put")
class ClaimReturnsStoredTags(MemoryClient):
    """Returns the stored tag dicts from a claim, not copies."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        rows = held(self, partition_id)._rows
        own = [rows[i].tags if i in rows else {} for i in meta.sample_ids]
        return replace(meta, tags=own)
