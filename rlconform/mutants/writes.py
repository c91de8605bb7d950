"""Puts that do more, less or something else than they say: columns, tags, ids and receipts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from tensordict import TensorDict

from rlconform.backends.memory import TARGET as RIGHT
from rlconform.backends.memory import MemoryClient
from rlconform.contract import KVBatchMeta, Tags, UnknownField
from rlconform.mutants import IMPATIENT, broken
from rlconform.mutants.values import held

breaks = partial(broken, RIGHT, timeouts=IMPATIENT)


class Writing(MemoryClient):
    """A plane whose puts can drop rows."""

    def forget(self, sample_ids: list[str], partition_id: str) -> None:
        """Drop rows, whoever put them."""
        MemoryClient.clear_samples(self, sample_ids, partition_id)


def names_of(fields: TensorDict | None) -> set[str]:
    """The names of a put's columns."""
    return set(map(str, fields.keys())) if isinstance(fields, TensorDict) else set()


@breaks("PUT-11", may_fail=("PUT-12",), says="row:")
class AppendsInStoredOrder(Writing):
    """Lays a later column of all rows beside the earlier ones, in the order in which those lie."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, a new column of all rows in the order of the partition."""
        rows = held(self, partition_id)._rows
        new = names_of(fields).isdisjoint(name for row in rows.values() for name in row.fields)
        if tags is None and new and names_of(fields) and set(rows) == set(sample_ids):
            super().put_samples(list(rows), partition_id, fields)
            return KVBatchMeta(partition_id, None, sample_ids, fields=sorted(names_of(fields)))
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-12", says="'y' of 'u0_g1' not to be readable")
class OneRowHasEveryField(Writing):
    """A read of one row, which has a way of its own, gives zeros for a field that others have."""

    def get_samples(
        self, sample_ids: list[str], partition_id: str, select_fields: list[str]
    ) -> TensorDict:
        """Read, and fill in what one row lacks."""
        try:
            return super().get_samples(sample_ids, partition_id, select_fields)
        except UnknownField:
            rows = held(self, partition_id)._rows
            known = {name for row in rows.values() for name in row.fields}
            if len(sample_ids) > 1 or not known.issuperset(select_fields):
                raise
            zeros = {name: torch.zeros(1, 1, dtype=torch.uint8) for name in select_fields}
            return TensorDict(zeros, batch_size=[1])


@breaks("PUT-12", says="no row ready for 'train' beside ['full']")
class MarksFieldsInOneWord(Writing):
    """Marks what a row has in a word of 64 bits: field 65 counts as produced where the first is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._numbers: dict[str, list[str]] = {}

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        """Put, and number the fields."""
        receipt = super().put_samples(sample_ids, partition_id, *args, **kwargs)
        numbers = self._numbers.setdefault(partition_id, [])
        numbers += [name for name in receipt.fields or () if name not in numbers]
        return receipt

    def claim_meta(
        self,
        partition_id: str,
        task_name: str,
        required_fields: list[str],
        *args: Any,
        **kwargs: Any,
    ) -> KVBatchMeta:
        """Claim rows that have the fields' bits."""
        numbers = self._numbers.get(partition_id, [])
        bits = [numbers[numbers.index(f) % 64] if f in numbers else f for f in required_fields]
        meta = super().claim_meta(partition_id, task_name, bits, *args, **kwargs)
        return replace(meta, fields=list(required_fields))


@breaks("PUT-15", says="a put whose parts differ in length")
class ZipsTheFirstPut(Writing):
    """Lays out a partition by its first put, whose ids and rows it pairs until one list ends."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, what is too long cut off if there is no row yet."""
        if isinstance(fields, TensorDict) and not held(self, partition_id).size and len(sample_ids):
            count = min(len(sample_ids), *fields.batch_size)
            sample_ids, fields = sample_ids[:count], fields[:count]
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-16", says="no tag of the failed put")
class StampsFirst(MemoryClient):
    """Stores a put's tags before it looks at what the columns are (NR-07)."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put the tags, then the columns."""
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except TypeError:
            if tags is not None and isinstance(fields, TensorDict):
                super().put_samples(sample_ids, partition_id, None, tags)
            raise


@breaks("PUT-16", "LIFE-07", says="every row still consumed")
class CountsFailedPuts(MemoryClient):
    """Counts the rows of a put before it stores them, also of one that fails (NR-05, NR-07)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._ghosts: set[str] = set()

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        """Put, the partition marked while it fails."""
        try:
            return super().put_samples(sample_ids, partition_id, *args, **kwargs)
        except (TypeError, ValueError):
            if isinstance(sample_ids, list) and held(self, partition_id).size:
                self._ghosts.add(partition_id)
            raise

    def check_consumption_status(self, partition_id: str, task_names: list[str]) -> bool:
        """Whether all was claimed, rows of failed puts as well."""
        done = super().check_consumption_status(partition_id, task_names)
        return done and partition_id not in self._ghosts


@breaks("PUT-16", says="never put, or cleared", may_fail=("PUT-15", "PUT-23"))
class RollsBackByClearing(Writing):
    """Clears the ids of a put that failed, and with them the rows that were there before it."""

    def put_samples(
        self, sample_ids: list[str], partition_id: str, *args: Any, **kwargs: Any
    ) -> KVBatchMeta:
        """Put, or clear."""
        try:
            return super().put_samples(sample_ids, partition_id, *args, **kwargs)
        except (TypeError, ValueError):
            if isinstance(partition_id, str) and isinstance(sample_ids, list):
                self.forget([i for i in sample_ids if isinstance(i, str)], partition_id)
            raise


@breaks("PUT-17", says="tags put before the fields")
class FieldsStartTheRow(Writing):
    """Makes a row with its first fields, and forgets the tags that came before them."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, after rows that have no field were dropped."""
        if names_of(fields) and tags is None:
            rows = held(self, partition_id)._rows
            if all(i in rows and not rows[i].fields for i in sample_ids):
                self.forget(sample_ids, partition_id)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-18", says="needs fields or tags")
class TakesNoTagsForNone(MemoryClient):
    """Refuses a put without fields or tags, and takes an empty list of tags for none."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, if there is anything."""
        if fields is None and not tags:
            raise ValueError("a put needs fields or tags")
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-18", says="holds torch.float32")
class EmptyPutsSetDtypes(Writing):
    """Learns a field's dtype from a put without rows, whose zeros are float32 by default."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._dtypes: dict[tuple[str, str], torch.dtype] = {}

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put rows of the dtype that the field has."""
        receipt = super().put_samples(sample_ids, partition_id, fields, tags)
        for name in names_of(fields):
            leaf = fields.get(name) if fields is not None else None
            key = (partition_id, name)
            if isinstance(leaf, torch.Tensor) and not sample_ids:
                self._dtypes[key] = leaf.dtype
            elif isinstance(leaf, torch.Tensor) and self._dtypes.get(key, leaf.dtype) != leaf.dtype:
                self.forget(sample_ids, partition_id)
                raise ValueError(f"{name!r} holds {self._dtypes[key]}")
        return receipt


@breaks("PUT-19", says="an id twice in one put")
class LastRowWins(MemoryClient):
    """Takes an id twice in one put, and keeps the last of its rows."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put the last row of each id."""
        last = {sample_id: n for n, sample_id in enumerate(sample_ids)}
        rows = len(sample_ids)
        if len(last) < rows and isinstance(fields, TensorDict) and fields.batch_size == (rows,):
            picked = None if tags is None else [tags[n] for n in last.values()]
            fields = fields[list(last.values())]
            return super().put_samples(list(last), partition_id, fields, picked)
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("PUT-23", says="'w' of 'second' not to be readable")
class StoresColumnByColumn(MemoryClient):
    """Stores column by column, and keeps those before the one of another dtype that it refuses."""

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put, or put what comes before the column at fault."""
        try:
            return super().put_samples(sample_ids, partition_id, fields, tags)
        except ValueError as refusal:
            if fields is not None and "must replace all" in str(refusal):
                good = [n for n in names_of(fields) if f"field {n!r}" not in str(refusal)]
                super().put_samples(sample_ids, partition_id, fields.select(*good))
            raise
