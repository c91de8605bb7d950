"""Memory that the caller and the plane share, so that a write on one side shows on the other."""

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
    """Keeps the caller's own dict of a put of tags alone; with columns they are copied."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        if fields is None and tags is not None:
            with self._engine._locked() as index:  # type: ignore[attr-defined]
                rows = rows_in(index, partition_id, sample_ids)
                for row, given in zip(rows, tags, strict=True):
                    if row.tags == given:  # else it had others, and they were merged
                        row.tags = given
        return receipt


#: Columns that were read, by the block whose rows they hold; then by field and places in it.
_READ: WeakKeyDictionary[Block, dict[tuple[str, tuple[int, ...]], Any]] = WeakKeyDictionary()


def _read_before(
    index: Index,
    partition_id: str,
    sample_ids: Ids,
    batch: TensorDict,
    applies: Callable[[Any], bool] = lambda _: True,
) -> TensorDict:
    """The batch; a column to which it applies is the very one of the first read of its rows."""
    for name in map(str, list(batch.keys())):
        sources = index.locate(partition_id, sample_ids, [name])
        if len(sources) == 1 and applies(batch.get(name)):
            read = _READ.setdefault(sources[0].block, {})
            batch.set(name, read.setdefault((name, tuple(sources[0].indexes)), batch.get(name)))
    return batch


#: Bytes from which on a column is too large to be copied.
LARGE = 64 << 10


def _is_large(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not leaf.is_nested and leaf.nbytes > LARGE


@engine_mutant("PUT-09", evidence="got [-1.0")
class GetLargeReadsMapped(MemoryEngine):
    """Reads of more than 64 KiB map the store's own memory, and can be written to (Ray maps too).

    Smaller ones are copies, so that no small test shows it.
    """

    def get(self, partition_id: str, sample_ids: Ids, names: Names) -> TensorDict:
        with self._locked() as index:
            batch = super().get(partition_id, sample_ids, names)
            return _read_before(index, partition_id, sample_ids, batch, _is_large)


@memory_mutant("PUT-09", evidence="got [-1.0")
class GetDataReturnsSharedMemory(MemoryClient):
    """Remembers what it read for a meta, and hands out the same tensors the next time."""

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
    """Sends from 64 KiB on without a copy, as message queues do: later writes are stored too."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        packed = pack(fields, len(sample_ids))
        parcel = packed | _own({n: column for n, column in packed.items() if _is_small(column)})
        with self._locked() as index:
            due = index.commit(partition_id, sample_ids, extents_of(parcel), parcel, tags, _WRITER)
            self._plane.changed.notify_all()
        self._compact(due)


class BorrowingEngine(MemoryEngine):
    """Keeps columns of one layout as the memory that they come in."""

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
    """Keeps a dense column as the caller's own memory: what is written to it later shows."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = BorrowingEngine(None, bootstrap)


class JaggedBorrowingEngine(BorrowingEngine):
    """Keeps the tokens of jagged columns."""

    borrows = "jagged"


@memory_mutant("PUT-09", evidence="row 0 of 'y' =", may_fail=("PUT-10",))
class PutJaggedNotCopied(MemoryClient):
    """Copies dense columns and keeps the tokens of jagged ones, for which clone is said to fail."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._engine.close()
        self._engine = JaggedBorrowingEngine(None, bootstrap)


class Remembering(MemoryClient):
    """A plane that gives a batch again, memory and all, until the partition is written to."""

    def __init__(self, cfg: Any = None, bootstrap: bool = True) -> None:
        super().__init__(cfg, bootstrap)
        self._batches: dict[tuple[str, ...], TensorDict] = {}

    def remembers(self, batch: TensorDict) -> bool:
        """Whether a batch is worth remembering."""
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
    """Remembers jagged columns that were read, without a copy: a reader writes into the next."""

    def remembers(self, batch: TensorDict) -> bool:
        leaves = [batch.get(str(name)) for name in batch.keys()]  # noqa: SIM118
        return all(isinstance(leaf, Tensor) and is_jagged(leaf) for leaf in leaves)


@memory_mutant("PUT-09", evidence="tags of the put")
class PutTagsNotCopied(MemoryClient):
    """Keeps the dicts of a row's first tags, where it should keep copies."""

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
    """Gives a claim's caller the dicts that it keeps."""

    def claim_meta(self, partition_id: str, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(partition_id, *args, **kwargs)
        rows = held(self, partition_id)._rows
        own = [rows[i].tags if i in rows else {} for i in meta.sample_ids]
        return replace(meta, tags=own)
