"""Tags that come changed, late, beside other rows, or from a former life."""

# ruff: noqa: ARG002 - a mutant looks at what it needs of a call

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.contract.fields import INPUT_LENGTHS
from rlconform.mutants.engines import breaks, breaks_engine, rows_in
from rlconform.wire import rows_of


class _ChangesValues(MemoryClient):
    """Keeps each tag as ``change`` makes it."""

    change: Callable[[Any], Any]

    def put_samples(
        self,
        sample_ids: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[Tags] | None = None,
    ) -> KVBatchMeta:
        """Put with the tags as they are kept."""
        if tags is not None:
            tags = [{key: self.change(value) for key, value in row.items()} for row in tags]
        return super().put_samples(sample_ids, partition_id, fields, tags)


@breaks("TAG-01", says="'true': True")
class CountsTruth(_ChangesValues):
    """Keeps a bool as the integer that it equals, as a column of integers does."""

    @staticmethod
    def change(value: Any) -> Any:
        """What is kept of a value."""
        return int(value) if isinstance(value, bool) else value


@breaks("TAG-01", says="1e-300")
class KeepsFloatsInSingle(_ChangesValues):
    """Keeps floats in four bytes, where nearly all tags of a trainer are exact enough."""

    @staticmethod
    def change(value: Any) -> Any:
        """What is kept of a value."""
        return struct.unpack("f", struct.pack("f", value))[0] if type(value) is float else value


@breaks("TAG-01", says="to carry", may_fail=("TAG-03",))
class KeepsIntegersAsDoubles(_ChangesValues):
    """Sends tags through a format whose only numbers are doubles: integers above 2**53 change."""

    @staticmethod
    def change(value: Any) -> Any:
        """What is kept of a value."""
        return int(float(value)) if type(value) is int else value


@breaks("TAG-01", says="'none': None")
class DropsNone(MemoryClient):
    """Leaves out a tag that is None, as if it had not been given."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows, with the tags that are something."""
        meta = super().claim_meta(*args, **kwargs)
        tags = [{k: v for k, v in row.items() if v is not None} for row in meta.tags or []]
        return replace(meta, tags=tags)


@breaks("TAG-01", "CLEAR-05", says="to carry", may_fail=("TAG-03", "CLEAR-04"))
class ListsTagsByName(MemoryClient):
    """Lists the ids of a claim by age, and the tags beside them by name."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows, beside tags in another order."""
        meta = super().claim_meta(*args, **kwargs)
        by_id = dict(zip(meta.sample_ids, meta.tags or [], strict=True))
        return replace(meta, tags=[by_id[sample_id] for sample_id in sorted(by_id)])


@breaks("TAG-01", "TAG-05", "CLEAR-05", says="tags where only one row has any")
class KeepsTagsInColumns(MemoryClient):
    """Keeps tags in columns: a row without a key comes with it all the same, as None."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows that all carry the same keys."""
        meta = super().claim_meta(*args, **kwargs)
        keys = dict.fromkeys(key for row in meta.tags or [] for key in row)
        return replace(meta, tags=[{key: row.get(key) for key in keys} for row in meta.tags or []])


@breaks_engine(
    "TAG-02", "PUT-17", "CLEAR-05", says="tags after write-backs", may_fail=("TAG-01", "CLEAR-04")
)
class TakesNoTagsForEmptyOnes(MemoryEngine):
    """A put without tags writes empty ones: a weight version that is gone passes any filter."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and replace the tags where none are given."""
        super().put(partition_id, sample_ids, fields, tags)
        if tags is None:
            with self._locked() as index:
                for row in rows_in(index, partition_id, sample_ids):
                    row.tags = {}


@breaks_engine("TAG-02", says="tags after write-backs", may_fail=("TAG-01",))
class MakesOverwrittenRowsAnew(MemoryEngine):
    """A put that overwrites a field makes the row anew, with the tags that came along: none."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and forget the tags of rows that had one of the fields."""
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            old = [row for row in known if row.fields & names]
        super().put(partition_id, sample_ids, fields, tags)
        for row in old if tags is None else []:
            row.tags = {}


class _Stamps(MemoryEngine):
    """Writes ``stamped(old, new)`` where a put brings tags for a row."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, and change the tags."""
        with self._locked() as index:
            before = {r.sample_id: r.tags for r in rows_in(index, partition_id, sample_ids)}
        super().put(partition_id, sample_ids, fields, tags)
        if tags is not None and self.applies(fields):
            new = dict(zip(sample_ids, tags, strict=True))
            with self._locked() as index:
                for row in rows_in(index, partition_id, before):
                    row.tags = self.stamped(before[row.sample_id], new[row.sample_id])

    def applies(self, fields: TensorDictBase | None) -> bool:
        """Whether a put with these fields is treated so."""
        return True

    def stamped(self, old: Tags, new: Tags) -> Tags:
        """The row's tags after the put."""
        return dict(new)


@breaks_engine("TAG-03", says="merged tags")
class WritesTagsAnew(_Stamps):
    """Tags of a second put take the place of the first ones: a stamp wipes the weight version."""


@breaks_engine("TAG-03", says="merged tags")
class WritesTagsOfPutsAnew(_Stamps):
    """A stamp is merged, but a put that brings fields too replaces the whole row, tags and all."""

    def applies(self, fields: TensorDictBase | None) -> bool:
        """Only where fields come along."""
        return fields is not None


@breaks_engine("TAG-03", says="merged tags", may_fail=("TAG-01",))
class KeepsTheFirstStamp(_Stamps):
    """Adds keys that a row has not got yet, and keeps the old value of one that it has."""

    def stamped(self, old: Tags, new: Tags) -> Tags:
        """The row's tags after the put."""
        return {**new, **old}


@breaks_engine("TAG-04", says="the tags of its put on every claimed row", chance=True)
class SendsTagsAfterwards(MemoryEngine):
    """A put makes its rows claimable, and brings their tags in a second step (TQ-04)."""

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put fields, then tags."""
        if fields is None or tags is None:
            super().put(partition_id, sample_ids, fields, tags)
        else:
            super().put(partition_id, sample_ids, fields, None)
            time.sleep(0.002)  # as long as a second message takes
            super().put(partition_id, sample_ids, None, tags)


@breaks_engine("TAG-05", says="tags of the new life", may_fail=("CLEAR-04",))
class KeepsTagsInATableOfTheirOwn(MemoryEngine):
    """A clear empties the table of rows and not that of tags, which the next put writes over.

    If it brings tags: where it brings none, a former life's weight version comes back.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: dict[tuple[str, str], Tags] = {}

    def put(
        self,
        partition_id: str,
        sample_ids: list[str],
        fields: TensorDictBase | None,
        tags: list[Tags] | None,
    ) -> None:
        """Put, with the tags that are still there where none are given."""
        left = [self._left.pop((partition_id, sample_id), {}) for sample_id in sample_ids]
        super().put(partition_id, sample_ids, fields, left if tags is None and any(left) else tags)

    def clear(self, partition_id: str, sample_ids: list[str] | None) -> None:
        """Drop rows but not their tags; rows that are tags alone go whole."""
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                if row.fields:
                    self._left[partition_id, row.sample_id] = row.tags
        super().clear(partition_id, sample_ids)


class _CountsTokens(MemoryClient):
    """Makes up the lengths of a claim that has none."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        """Claim rows, with lengths whatever their tags are."""
        meta = super().claim_meta(*args, **kwargs)
        if meta.sequence_lengths is None:
            meta = replace(meta, sequence_lengths=self.lengths(meta))
        return meta

    def lengths(self, meta: KVBatchMeta) -> list[int] | None:
        """Lengths of rows of which at least one says none."""
        return [int(row.get(INPUT_LENGTHS, 0)) for row in meta.tags or []]


@breaks("TAG-06", says="sequence_lengths where a row has none")
class ReadsAMissingLengthAsZero(_CountsTokens):
    """A row without the tag counts as one of no tokens."""


@breaks("TAG-06", says="sequence_lengths where a row has none")
class AsksTheFirstRowForLengths(_CountsTokens):
    """Whether the rows carry lengths is read off the first of them."""

    def lengths(self, meta: KVBatchMeta) -> list[int] | None:
        """Lengths of all if the first row has one."""
        tags = meta.tags or [{}]
        return super().lengths(meta) if INPUT_LENGTHS in tags[0] else None


@breaks("TAG-06", says="sequence_lengths where a row has none")
class MeasuresARow(_CountsTokens):
    """Where rows carry no lengths, takes those of their first field for them: bytes of an image."""

    def lengths(self, meta: KVBatchMeta) -> list[int] | None:
        """Items in the first field of each row; none for rows that were cleared meanwhile."""
        try:
            leaf = self.get_data(meta).get((meta.fields or [])[0])
        except LookupError:
            return None
        if not isinstance(leaf, torch.Tensor):
            return None
        return [row.shape[0] if row.dim() else 1 for row in rows_of(leaf)]
