"""Reads by id that return other rows, fields or shapes than were asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, UnknownField, UnknownSample
from rlconform.mutants.memory.column_helpers import jagged, mapped
from rlconform.mutants.memory.helpers import engine_mutant, held, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Ids, MaybeTags, Names
from rlconform.wire.leaves import is_jagged, rows_of


@memory_mutant("GET-01", evidence="row 0 of 'x'")
class GetLongReadsSortedById(MemoryClient):
    """Returns rows sorted by id if a read asks for more than 100 rows of tensors."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        tensors = all(torch.is_tensor(batch.get(name)) for name in select_fields)
        if len(sample_ids) > 100 and tensors:
            return super().get_samples(sorted(sample_ids), partition_id, select_fields)
        return batch


#: Rows in one message of a put.
CHUNK = 512


@engine_mutant("GET-01", evidence="row 0 of 'x' =")
class PutSecondChunkReversed(MemoryEngine):
    """Stores the rows after the first 512 of a put, its second message, in reverse order."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        ids = [*sample_ids[:CHUNK], *reversed(sample_ids[CHUNK:])]
        super().put(partition_id, ids, fields, tags)


#: Rows of a partition that the store keeps.
ROOM = 600


@engine_mutant("GET-01", "CLAIM-04", "CLAIM-05", "CLEAR-01", evidence="never put, or cleared")
class PutEvictsOldRows(MemoryEngine):
    """Silently drops rows of a partition beyond the newest 600, as a full queue does."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        with self._locked() as index:
            old = [row.sample_id for row in rows_in(index, partition_id, None)][:-ROOM]
        if old:
            super().clear(partition_id, old)


@memory_mutant("GET-02", evidence="4 rows of 'x'")
class GetRepeatedIdReadOnce(MemoryClient):
    """Reads each id once, so a read that repeats an id returns too few rows."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        return super().get_samples(list(dict.fromkeys(sample_ids)), partition_id, select_fields)


@memory_mutant("GET-02", evidence="row 2 of 'x'")
class GetRepeatedIdZeroed(MemoryClient):
    """Fills one row for each id, so repeats of an id are zeros."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        again = [n for n, i in enumerate(sample_ids) if i in sample_ids[:n]]
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if not again:
            return batch
        return mapped(batch, lambda leaf: leaf.index_fill(0, torch.tensor(again), 0))


def moved(leaf: torch.Tensor, times: list[int]) -> torch.Tensor:
    """The rows of a jagged column; those with 0 in ``times`` have no tokens."""
    rows = zip(rows_of(leaf), times, strict=True)
    return jagged([row[: len(row) * count] for row, count in rows])


@memory_mutant("GET-02", evidence="row 2 of 'x' of shape")
class GetRepeatedJaggedRowEmptied(MemoryClient):
    """Moves the tokens of a jagged row on a read, so repeats of an id have no tokens."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        lengths = [int(i not in sample_ids[:n]) for n, i in enumerate(sample_ids)]
        if all(lengths):
            return batch
        return mapped(batch, lambda leaf: moved(leaf, lengths) if is_jagged(leaf) else leaf)


@memory_mutant("GET-03", evidence="fields of the result ['x', 'z']")
class GetFieldRangeReturned(MemoryClient):
    """Returns all fields from the first to the last that a read asks for (NR-25)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        between = [
            f for f in "xyz" if select_fields and min(select_fields) < f < max(select_fields)
        ]
        try:
            names = [*select_fields, *between]
            return super().get_samples(sample_ids, partition_id, names)
        except UnknownField:
            return super().get_samples(sample_ids, partition_id, select_fields)


def known_of(client: MemoryClient, ids: list[str], partition_id: str, names: Names) -> list[str]:
    """The ids that can be read."""
    known = []
    for sample_id in ids:
        try:
            MemoryClient.get_samples(client, [sample_id], partition_id, names)
        except UnknownSample:
            continue
        known.append(sample_id)
    return known


@memory_mutant("GET-04", "GET-06", evidence="expected an id that was never put to be rejected")
class DropsUnknownIds(MemoryClient):
    """Leaves out ids that it doesn't know, so later rows shift (NR-01)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        return super().get_samples(
            known_of(self, sample_ids, partition_id, select_fields), partition_id, select_fields
        )


@memory_mutant("GET-04", evidence="one unknown id among 48 known ones")
class DropsUnknownIdsOfLongReads(MemoryClient):
    """Leaves out unknown ids after the 16th, the limit of one request (MC-13)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        first, later = sample_ids[:16], sample_ids[16:]
        later = known_of(self, later, partition_id, select_fields)
        return super().get_samples([*first, *later], partition_id, select_fields)


@memory_mutant("GET-04", evidence="an id that was never put")
class GetUnknownIdReturnsNeighbour(MemoryClient):
    """Returns a neighbouring row for an unknown id: it bisects a table and doesn't compare ids."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ids: dict[str, list[str]] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        self._ids[partition_id] = sorted({*self._ids.get(partition_id, ()), *sample_ids})
        return receipt

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        table = self._ids.get(str(partition_id), [])
        if table and isinstance(sample_ids, list) and len(sample_ids) > 1:
            places = (bisect_left(table, sample_id) for sample_id in sample_ids)
            sample_ids = [table[min(place, len(table) - 1)] for place in places]
        return super().get_samples(sample_ids, partition_id, select_fields)


@memory_mutant("GET-05", evidence="a field not produced for every id")
class GetUnknownFieldsSkipped(MemoryClient):
    """Leaves out a field that no row of the partition has (NR-02)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except UnknownField:
            rest = [name for name in select_fields if name in ("x", "y", "z")]
            if not rest or len(rest) == len(select_fields):
                raise
            return super().get_samples(sample_ids, partition_id, rest)


@memory_mutant("GET-05", evidence="a field not produced for every id")
class GetRowsWithoutFieldDropped(MemoryClient):
    """Leaves out rows that lack a field of the read (NR-02)."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        having = []
        for sample_id in sample_ids:
            try:
                super().get_samples([sample_id], partition_id, select_fields)
            except UnknownField:
                continue
            having.append(sample_id)
        return super().get_samples(having or sample_ids, partition_id, select_fields)


@memory_mutant("GET-07", evidence="expected batch size (0,)")
class GetNoIdsReturnsAll(MemoryClient):
    """Returns every row of the partition for a read of no ids, as ``ids or all_ids`` does."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        rows = held(self, partition_id).rows_of("") if sample_ids == [] else sample_ids
        return super().get_samples(rows, partition_id, select_fields)


@memory_mutant("GET-08", evidence="unconsumed")
class GetCountsAsClaim(MemoryClient):
    """Counts a read as a claim, so reads of enough rows make the partition consumed.

    A read by a meta doesn't count, because a claim has returned that meta.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._left: Counter[str] = Counter()

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        self._left[partition_id] += len(sample_ids)
        return batch

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        before = self._left.copy()
        batch = super().get_data(meta, select_fields)
        self._left = before
        return batch

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        rows = held(self, str(partition_id)).size
        done = super().check_consumption_status(partition_id, task_names)
        return done or 0 < rows < self._left[partition_id]


@memory_mutant("GET-09", evidence="batch size")
class GetOneValueBatchSizeLost(MemoryClient):
    """Returns a batch without a batch size for a read of one value."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        if len(sample_ids) == len(select_fields) == 1:
            batch.batch_size = torch.Size([])
        return batch


@memory_mutant("GET-09", "WIRE-01", "WIRE-02", "WIRE-03", "WIRE-04", evidence="batch size of")
class GetBatchSizeGuessed(MemoryClient):
    """Guesses the batch size from all dimensions that the columns share."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        batch = super().get_samples(sample_ids, partition_id, select_fields)
        batch.auto_batch_size_()
        return batch


@memory_mutant("GET-12", evidence="get_data of no fields")
class GetDataNoFieldsReadsFieldsOfMeta(MemoryClient):
    """Treats an empty list of fields in get_data as None and reads the meta's fields."""

    def get_data(self, meta: Any, select_fields: Names | None = None) -> TensorDict:
        return super().get_data(meta, select_fields or None)


@memory_mutant("GET-12", evidence="a read of no fields")
class GetNoFieldsAccepted(MemoryClient):
    """Returns a batch without columns for a read of no fields."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        if select_fields == []:
            return TensorDict({}, batch_size=[len(sample_ids)])
        return super().get_samples(sample_ids, partition_id, select_fields)
