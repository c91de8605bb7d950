"""Fields and names that get in each other's way: in other partitions, steps, puts and threads."""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlconform.backends.columns.column_block import extents_of
from rlconform.backends.columns.encode import pack
from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.claims import Claimed
from rlconform.mutants.engines import breaks, breaks_engine, rows_in
from rlconform.mutants.values import held


@breaks_engine("REG-04", says="must replace all of them")
class OneSchemaForAllPartitions(MemoryEngine):
    """Keeps one table of fields for all partitions: a field has one dtype in train and in val."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, if no other partition holds the fields in other dtypes."""
        extents = extents_of(pack(fields, len(sample_ids)))
        with self._locked() as index:
            for other, partition in index._partitions.items():
                if other != partition_id:
                    partition.check_kinds([], extents)
        super().put(partition_id, sample_ids, fields, tags)


@breaks_engine("CLEAR-04", says="ValueError: field 'x' holds float32")
class DtypesOutliveTheirRows(MemoryEngine):
    """Remembers which rows hold a field in which dtype, and a clear forgets it for none.

    Rows that come again may replace all of it; a next step with other rows is refused.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._known: dict[tuple[str, str], tuple[str, set[str]]] = {}

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put fields of the dtype that they ever had, or all their rows at once."""
        new = {}
        for name, extent in extents_of(pack(fields, len(sample_ids))).items():
            kind, rows = self._known.get((partition_id, name), (extent.kind, set[str]()))
            if kind != extent.kind and not rows.issubset(sample_ids):
                raise ValueError(f"field {name!r} holds {kind}")
            new[partition_id, name] = (extent.kind, rows.union(sample_ids))
        super().put(partition_id, sample_ids, fields, tags)
        self._known |= new


@breaks_engine("PUT-03", "PUT-01", says="of shape (); got (1,)")
class InflatesAcrossPuts(MemoryEngine):
    """Concatenates what several puts brought, for which it makes scalars (N, 1): so they stay."""

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read rows, scalars of several puts with a dimension more."""
        batch = super().get(partition_id, sample_ids, names)
        for name in names:
            leaf = batch.get(name)
            if isinstance(leaf, Tensor) and not leaf.is_nested and leaf.dim() == 1:
                with self._locked() as index:
                    puts = len(index.locate(partition_id, sample_ids, [name]))
                batch.set(name, leaf.unsqueeze(1) if puts > 1 else leaf)
        return batch


@breaks_engine("REG-01", says="is taken")
class RefusesCommonNames(MemoryEngine):
    """Makes columns attributes of a record, where a field called values, keys or items can't go."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put fields of other names."""
        taken = {"values", "keys", "items"}.intersection(pack(fields, len(sample_ids)))
        if taken:
            raise ValueError(f"{taken} is taken")
        super().put(partition_id, sample_ids, fields, tags)


@breaks_engine("PUT-20", says="row:")
class FindsIdsByChecksum(MemoryEngine):
    """Finds rows by a checksum of their ids of 32 bits: of two ids with one, the older is read."""

    def get(self, partition_id: str, sample_ids: list[str], names: list[str]) -> TensorDict:
        """Read the oldest rows of these checksums."""
        oldest: dict[int, str] = {}
        with self._locked() as index:
            for row in rows_in(index, partition_id, None):
                oldest.setdefault(_checksum(row.sample_id), row.sample_id)
        found = [oldest.get(_checksum(sample_id), sample_id) for sample_id in sample_ids]
        return super().get(partition_id, found, names)


def _checksum(sample_id: str) -> int:
    return zlib.crc32(sample_id.encode())


@breaks_engine("REG-04", says="never put, or cleared")
class ClearsPartitionsByPrefix(MemoryEngine):
    """Clears a partition by the beginning of its keys: with train all of train_async goes too."""

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows; with None those of all partitions whose names begin like this one."""
        super().clear(partition_id, sample_ids)
        with self._locked() as index:
            others = [name for name in index._partitions if name.startswith(partition_id)]
        for other in others if sample_ids is None else []:
            super().clear(other, None)


@breaks_engine("CLAIM-03", says="whose partition has the long name")
class JoinsPartitionAndTask(MemoryEngine):
    """Keeps cursors under ``partition:task``: task b:c of partition a shares that of c in a:b."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._cursors: defaultdict[str, dict[str, str]] = defaultdict(dict)

    def claim(
        self, partition_id: str, task: str, names: list[str], rows: int, wait_s: float | None
    ) -> Claimed:
        """Claim rows, but those of whose ids the cursor has one of another partition."""
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        cursor = self._cursors[f"{partition_id}:{task}"]
        new = [n for n, i in enumerate(ids) if cursor.setdefault(i, partition_id) == partition_id]
        return [ids[n] for n in new], [tags[n] for n in new]

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, and what the cursors know of them."""
        super().clear(partition_id, sample_ids)
        for cursor in self._cursors.values():
            for sample_id, where in list(cursor.items()):
                if where == partition_id and (sample_ids is None or sample_id in sample_ids):
                    del cursor[sample_id]


@breaks_engine("CLEAR-03", says="not to be readable")
class ThreadsOwnTheirRows(MemoryEngine):
    """With None it drops what this thread put, where it should be this process: rows stay."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and note whose new rows are."""
        with self._locked() as index:
            super().put(partition_id, sample_ids, fields, tags)
            for row in rows_in(index, partition_id, sample_ids):
                if not row.writer:
                    index.partition(partition_id)._change_writer(row, str(threading.get_ident()))

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows, with None this thread's."""
        if sample_ids is None:
            with self._locked() as index:
                partition = index._partitions.get(partition_id)
                me = str(threading.get_ident())
                sample_ids = [] if partition is None else partition.rows_of(me)
        super().clear(partition_id, sample_ids)


@breaks("PUT-23", says="float32")
class CastsOverwrites(MemoryClient):
    """Refuses new rows of another dtype, and casts what overwrites a row to the dtype it had."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put; where the dtype is another and the rows are known, cast."""
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except ValueError:
            row = held(self, partition_id)._rows.get(sample_ids[0]) if sample_ids else None
            if fields is None or row is None or not row.fields.issuperset(fields.keys()):
                raise
            known = super().get_samples(
                sample_ids[:1], partition_id, sorted(map(str, fields.keys()))
            )
        like = {name: leaf.to(known.get(name).dtype) for name, leaf in fields.items()}
        cast = TensorDict(like, batch_size=fields.batch_size)
        return super().put_samples(sample_ids, partition_id, cast, tags)
