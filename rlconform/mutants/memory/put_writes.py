"""Puts that write to other rows or fields than they name, or store part of a refused put."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, UnknownField
from rlconform.mutants.memory.helpers import Writing, held, memory_mutant, names_of, rows_in
from rlconform.mutants.types import Ids, MaybeBatch, MaybeTags, Names


@memory_mutant("PUT-11", may_fail=("PUT-12",), evidence="row:")
class PutLaterColumnInStoredOrder(Writing):
    """Stores a later column of all rows in stored order, not in the order of the put's ids."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        rows = held(self, partition_id)._rows
        new = names_of(fields).isdisjoint(name for row in rows.values() for name in row.fields)
        if tags is None and new and names_of(fields) and set(rows) == set(sample_ids):
            super().put_samples(list(rows), partition_id, fields)
            return KVBatchMeta(partition_id, None, sample_ids, fields=sorted(names_of(fields)))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-12", evidence="'y' of 'u0_g1' not to be readable")
class GetOneRowZeroFills(Writing):
    """Returns zeros in a read of one row for a field that only other rows have."""

    def get_samples(self, sample_ids: Ids, partition_id: str, select_fields: Names) -> TensorDict:
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except UnknownField:
            rows = held(self, partition_id)._rows
            known = {name for row in rows.values() for name in row.fields}
            if len(sample_ids) > 1 or not known.issuperset(select_fields):
                raise
            zeros = {name: torch.zeros(1, 1, dtype=torch.uint8) for name in select_fields}
            return TensorDict(zeros, batch_size=[1])


@memory_mutant("PUT-12", evidence="no row ready for 'train' beside ['full']")
class PutFieldMaskWraps(Writing):
    """Marks produced fields in a mask of 64 bits, so field 65 looks produced if field 1 is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._numbers: dict[str, list[str]] = {}

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        numbers = self._numbers.setdefault(partition_id, [])
        numbers += [name for name in receipt.fields or () if name not in numbers]
        return receipt

    def claim_meta(
        self, partition_id: str, task_name: str, required_fields: Names, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        numbers = self._numbers.get(partition_id, [])
        bits = [numbers[numbers.index(f) % 64] if f in numbers else f for f in required_fields]
        meta = super().claim_meta(partition_id, task_name, bits, *args, **kwargs)
        return replace(meta, fields=list(required_fields))


@memory_mutant("PUT-15", evidence="|x|v1")
class PutOverwritesBeforeLengthCheck(MemoryClient):
    """Overwrites existing rows before it rejects a put with too few or too many tags."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict) and tags is not None and len(tags) != len(sample_ids):
            with self._engine._locked() as index:  # type: ignore[attr-defined]
                known = rows_in(index, partition_id, sample_ids)
            if len(known) == len(sample_ids):
                super().put_samples(sample_ids, partition_id, fields)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-15", evidence="a put whose parts differ in length")
class PutFirstLengthsZipped(Writing):
    """Truncates ids and rows of a partition's first put to equal length, and doesn't reject it."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(fields, TensorDict) and not held(self, partition_id).size and len(sample_ids):
            count = min(len(sample_ids), *fields.batch_size)
            sample_ids, fields = sample_ids[:count], fields[:count]
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-15", evidence="a put whose parts differ in length")
class PutEmptyTagsBesideRowsAccepted(MemoryClient):
    """Tests ``if tags:``, so it accepts rows with an empty list of tags."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if fields is not None and not tags:
            tags = None
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-16", evidence="no tag of the failed put")
class PutFailedTagsStored(MemoryClient):
    """Stores the tags of a put that it rejects for its columns (NR-07)."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except TypeError:
            if tags is not None and isinstance(fields, TensorDict):
                super().put_samples(sample_ids, partition_id, None, tags)
            raise


@memory_mutant("PUT-16", "LIFE-07", evidence="every row still consumed")
class PutFailedRowsCounted(MemoryClient):
    """Counts the rows of a put that fails, so they are never consumed (NR-05, NR-07)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ghosts: set[str] = set()

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, *args, **kwargs)
        except (TypeError, ValueError):
            if isinstance(sample_ids, list) and held(self, partition_id).size:
                self._ghosts.add(partition_id)
            raise

    def check_consumption_status(self, partition_id: str, task_names: Names) -> bool:
        done = super().check_consumption_status(partition_id, task_names)
        return done and partition_id not in self._ghosts


@memory_mutant("PUT-16", evidence="never put, or cleared", may_fail=("PUT-15", "PUT-23"))
class PutRollbackClearsOldRows(Writing):
    """Clears all ids of a failed put, also rows that existed before it."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        try:
            return super().put_samples(sample_ids, partition_id, *args, **kwargs)
        except (TypeError, ValueError):
            if isinstance(partition_id, str) and isinstance(sample_ids, list):
                self.forget([i for i in sample_ids if isinstance(i, str)], partition_id)
            raise


@memory_mutant("PUT-16", evidence="not to be readable")
class PutDuplicateIdStoresPart(MemoryClient):
    """Stores the rows before the last of a put that it rejects for a duplicate id."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if isinstance(sample_ids, list) and len(set(map(str, sample_ids))) < len(sample_ids):
            seen = len(sample_ids) - 1
            part = None if fields is None else fields[:seen]
            super().put_samples(sample_ids[:seen], partition_id, part, tags and tags[:seen])
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-17", evidence="tags put before the fields")
class PutFirstFieldsDropTags(Writing):
    """Drops the tags of a row when a put adds its first fields."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if names_of(fields) and tags is None:
            rows = held(self, partition_id)._rows
            if all(i in rows and not rows[i].fields for i in sample_ids):
                self.forget(sample_ids, partition_id)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("PUT-19", evidence="an id twice in one put")
class PutDuplicateIdKeepsLast(MemoryClient):
    """Accepts duplicate ids in one put and keeps only the last row."""

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        last = {sample_id: n for n, sample_id in enumerate(sample_ids)}
        rows = len(sample_ids)
        if len(last) < rows and isinstance(fields, TensorDict) and fields.batch_size == (rows,):
            picked = None if tags is None else [tags[n] for n in last.values()]
            fields = fields[list(last.values())]
            return super().put_samples(list(last), partition_id, fields, picked)
        return super().put_samples(sample_ids, partition_id, fields, tags)
