"""Memory that a caller and the store both hold, and memory that nobody frees."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlconform.backends.columns.column_block import Bytes, StoredColumn, extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.index import Index
from rlconform.backends.index.block import Block
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import _WRITER, MemoryEngine, _own
from rlconform.contract import Tags
from rlconform.mutants.engines import breaks, breaks_engine

#: Bytes from which on a column is too large to be copied.
LARGE = 64 << 10

#: Columns that were read, by the block whose rows they hold; then by field and places in it.
_READ: WeakKeyDictionary[Block, dict[tuple[str, tuple[int, ...]], Any]] = WeakKeyDictionary()


def _read_before(
    index: Index,
    partition_id: str,
    sample_ids: list[str],
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


def _is_large(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and not leaf.is_nested and leaf.nbytes > LARGE


@breaks_engine("PUT-09", says="got [-1.0")
class MapsLargeReads(MemoryEngine):
    """Reads of more than 64 KiB map the store's own memory, and can be written to (Ray maps too).

    Smaller ones are copies, so that no small test shows it.
    """

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows, large columns as they lie."""
        with self._locked() as index:
            batch = super().get(partition_id, sample_ids, names)
            return _read_before(index, partition_id, sample_ids, batch, _is_large)


@breaks("PUT-09", says="got [-1.0")
class GetDataGivesItsOwn(MemoryClient):
    """Remembers what it read for a meta, and hands out the same tensors the next time."""

    def get_data(self, meta: Any, select_fields: list[str] | None = None) -> TensorDict:
        """Read a meta's rows; what was read before as it is now."""
        engine = self._engine
        assert isinstance(engine, MemoryEngine), "the plane is in this process"
        with engine._locked() as index:
            batch = super().get_data(meta, select_fields)
            return _read_before(index, meta.partition_id, meta.sample_ids, batch)


@breaks_engine("PUT-09", says="got [9.0", may_fail=("PUT-10",))
class SendsLargeTensorsWithoutCopy(MemoryEngine):
    """Sends from 64 KiB on without a copy, as message queues do: later writes are stored too."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Write copies of small columns, and large ones themselves."""
        packed = pack(fields, len(sample_ids))
        parcel = packed | _own({n: column for n, column in packed.items() if _is_small(column)})
        with self._locked() as index:
            due = index.commit(partition_id, sample_ids, extents_of(parcel), parcel, tags, _WRITER)
            self._plane.changed.notify_all()
        self._compact(due)


def _is_small(column: StoredColumn) -> bool:
    return column.offsets is not None or column.values.nbytes <= LARGE


@breaks_engine("CLEAR-06", says="MiB")
class ReadCacheIsNeverEmptied(MemoryEngine):
    """Keeps each batch that it read for the next reader, also when its rows are gone."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._cache: list[TensorDict] = []

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows, and keep them."""
        batch = super().get(partition_id, sample_ids, names)
        self._cache.append(batch.clone())
        return batch


@breaks_engine("CLEAR-06", says="MiB")
class ObjectsAreNeverFreed(MemoryEngine):
    """Keeps objects and jagged rows in a heap of their own, which a clear leaves alone."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._heap: list[Bytes] = []

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, what has no fixed size into the heap."""
        super().put(partition_id, sample_ids, fields, tags)
        columns = pack(fields, len(sample_ids)).values()
        self._heap += [column.values.copy() for column in columns if column.offsets is not None]
