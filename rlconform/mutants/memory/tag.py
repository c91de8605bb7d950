"""Tags that are lost, converted, merged wrongly, or treated as fields."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rlconform.backends.memory import MemoryClient
from rlconform.backends.memory.engine import MemoryEngine
from rlconform.contract import KVBatchMeta, Tags
from rlconform.mutants.memory.helpers import engine_mutant, memory_mutant, rows_in
from rlconform.mutants.types import AnyBatch, Claimed, Ids, MaybeBatch, MaybeTags, Names, Wait


@engine_mutant("TAG-01", evidence="tags of the woken claim")
class TagsMissingAfterBlockingClaim(MemoryEngine):
    """Answers a claim that had to wait with the ids that woke it, and without their tags."""

    def claim(self, partition_id: str, task: str, names: Names, rows: int, wait_s: Wait) -> Claimed:
        with self._locked() as index:
            ready = index.partition(partition_id).is_ready(task, frozenset(names), rows)
        ids, tags = super().claim(partition_id, task, names, rows, wait_s)
        return ids, tags if ready or wait_s is None else [{} for _ in ids]


class _ChangesValues(MemoryClient):
    """Keeps each tag as ``change`` makes it."""

    change: Callable[[Any], Any]

    def put_samples(
        self, sample_ids: Ids, partition_id: str, fields: MaybeBatch = None, tags: MaybeTags = None
    ) -> KVBatchMeta:
        if tags is not None:
            tags = [{key: self.change(value) for key, value in row.items()} for row in tags]
        return super().put_samples(sample_ids, partition_id, fields, tags)


@memory_mutant("TAG-01", evidence="got {'std': None}")
class TagNanBecomesNone(_ChangesValues):
    """Sends tags as JSON, which knows no NaN: the deviation of one sample comes back as None."""

    @staticmethod
    def change(value: Any) -> Any:
        return None if isinstance(value, float) and math.isnan(value) else value


@memory_mutant("TAG-01", evidence="to carry {'prompt'")
class TagLongTextsTruncated(_ChangesValues):
    """Keeps tags in a column of 4096 characters, as a database has it: a longer text is cut."""

    @staticmethod
    def change(value: Any) -> Any:
        return value[:4096] if isinstance(value, str) else value


class _ChangesTags(MemoryEngine):
    """Keeps the tags of a put as ``kept`` makes them."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags and self.kept(partition_id, tags))

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        """What is kept of a put's tags."""
        raise NotImplementedError


@engine_mutant("TAG-01", evidence="got {'reward': 1.0}")
class TagIntegersBesideFloatsBecomeFloats(_ChangesTags):
    """Makes columns of a put's tags: an integer beside a float of the same key becomes a float."""

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        floats = {key for row in tags for key, value in row.items() if isinstance(value, float)}
        return [
            {k: float(v) if k in floats and type(v) is int else v for k, v in row.items()}
            for row in tags
        ]


def _is_finite(value: Any) -> bool:
    return isinstance(value, float) and math.isfinite(value)


@engine_mutant("TAG-01", evidence="got {'reward': 0}")
class TagTypeOfFirstPutKept(_ChangesTags):
    """Learns a tag's type from the first put that has it: a later 0.5 among integers is 0."""

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._types: dict[tuple[str, str], type] = {}

    def kept(self, partition_id: str, tags: list[Tags]) -> list[Tags]:
        whole = {key for (where, key), kind in self._types.items()
                 if where == partition_id and kind is int}  # fmt: skip
        for row in tags:
            for key, value in row.items():
                self._types.setdefault((partition_id, key), type(value))
        return [
            {k: int(v) if k in whole and _is_finite(v) else v for k, v in row.items()}
            for row in tags
        ]


@engine_mutant("TAG-01", evidence="tags after a put of tags on one row of three")
class TagEqualDictsShared(MemoryEngine):
    """Keeps equal tags of a put in one dict, as pickle does of ``[tags] * n``.

    A stamp updates it in place: what one row gets, all of them have.
    """

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        shared: dict[str, Tags] = {}
        with self._locked() as index:
            old = {r.sample_id: r.tags for r in rows_in(index, partition_id, sample_ids) if r.tags}
            super().put(partition_id, sample_ids, fields, tags)
            for row, new in zip(rows_in(index, partition_id, sample_ids), tags or [], strict=False):
                row.tags = old.get(row.sample_id) or shared.setdefault(repr(new), dict(new))
                row.tags.update(new)


@memory_mutant("TAG-01", evidence="'true': True")
class TagBooleansBecomeIntegers(_ChangesValues):
    """Keeps a bool as the integer that it equals, as a column of integers does."""

    @staticmethod
    def change(value: Any) -> Any:
        return int(value) if isinstance(value, bool) else value


@memory_mutant("TAG-01", evidence="1e-300")
class TagFloatsInSinglePrecision(_ChangesValues):
    """Keeps floats in four bytes, where nearly all tags of a trainer are exact enough."""

    @staticmethod
    def change(value: Any) -> Any:
        return struct.unpack("f", struct.pack("f", value))[0] if type(value) is float else value


@memory_mutant("TAG-01", evidence="to carry", may_fail=("TAG-03",))
class TagIntegersAsDoubles(_ChangesValues):
    """Sends tags through a format whose only numbers are doubles: integers above 2**53 change."""

    @staticmethod
    def change(value: Any) -> Any:
        return int(float(value)) if type(value) is int else value


@memory_mutant("TAG-01", evidence="'none': None")
class TagNoneDropped(MemoryClient):
    """Leaves out a tag that is None, as if it had not been given."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        tags = [{k: v for k, v in row.items() if v is not None} for row in meta.tags or []]
        return replace(meta, tags=tags)


@memory_mutant("TAG-01", "CLEAR-05", evidence="to carry", may_fail=("TAG-03", "CLEAR-04"))
class TagsSortedById(MemoryClient):
    """Lists the ids of a claim by age, and the tags beside them by name."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        by_id = dict(zip(meta.sample_ids, meta.tags or [], strict=True))
        return replace(meta, tags=[by_id[sample_id] for sample_id in sorted(by_id)])


@memory_mutant("TAG-01", "TAG-05", "CLEAR-05", evidence="tags where only one row has any")
class TagsStoredAsFields(MemoryClient):
    """Keeps tags in columns: a row without a key comes with it all the same, as None."""

    def claim_meta(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        meta = super().claim_meta(*args, **kwargs)
        keys = dict.fromkeys(key for row in meta.tags or [] for key in row)
        return replace(meta, tags=[{key: row.get(key) for key in keys} for row in meta.tags or []])


@engine_mutant(
    "TAG-02",
    "PUT-17",
    "CLEAR-05",
    evidence="tags after write-backs",
    may_fail=("TAG-01", "CLEAR-04"),
)
class TagsOmittedClearTags(MemoryEngine):
    """A put without tags writes empty ones: a weight version that is gone passes any filter."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        super().put(partition_id, sample_ids, fields, tags)
        if tags is None:
            with self._locked() as index:
                for row in rows_in(index, partition_id, sample_ids):
                    row.tags = {}


@engine_mutant("TAG-02", evidence="tags after write-backs", may_fail=("TAG-01",))
class TagsLostOnOverwrite(MemoryEngine):
    """A put that overwrites a field makes the row anew, with the tags that came along: none."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        names = set() if fields is None else set(map(str, fields.keys()))
        with self._locked() as index:
            known = rows_in(index, partition_id, sample_ids)
            old = [row for row in known if row.fields & names]
        super().put(partition_id, sample_ids, fields, tags)
        for row in old if tags is None else []:
            row.tags = {}


class _Stamps(MemoryEngine):
    """Writes ``stamped(old, new)`` where a put brings tags for a row."""

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        with self._locked() as index:
            before = {r.sample_id: r.tags for r in rows_in(index, partition_id, sample_ids)}
        super().put(partition_id, sample_ids, fields, tags)
        if tags is not None and self.applies(fields):
            new = dict(zip(sample_ids, tags, strict=True))
            with self._locked() as index:
                for row in rows_in(index, partition_id, before):
                    row.tags = self.stamped(before[row.sample_id], new[row.sample_id])

    def applies(self, fields: AnyBatch) -> bool:
        """Whether a put with these fields is treated so."""
        return True

    def stamped(self, old: Tags, new: Tags) -> Tags:
        """The row's tags after the put."""
        return dict(new)


@engine_mutant("TAG-03", evidence="merged tags")
class TagsReplacedByEveryPut(_Stamps):
    """Tags of a second put take the place of the first ones: a stamp wipes the weight version."""


@engine_mutant("TAG-03", evidence="merged tags")
class TagsReplacedByPutsWithFields(_Stamps):
    """A stamp is merged, but a put that brings fields too replaces the whole row, tags and all."""

    def applies(self, fields: AnyBatch) -> bool:
        return fields is not None


@engine_mutant("TAG-03", evidence="merged tags", may_fail=("TAG-01",))
class TagFirstValueKept(_Stamps):
    """Adds keys that a row has not got yet, and keeps the old value of one that it has."""

    def stamped(self, old: Tags, new: Tags) -> Tags:
        return {**new, **old}


@engine_mutant("TAG-05", evidence="tags after the clear", may_fail=("CLEAR-04",))
class TagsSurviveClear(MemoryEngine):
    """A clear empties the table of rows and not that of tags, which the next put writes over.

    If it brings tags: where it brings none, a former life's weight version comes back.
    """

    def __init__(self, capacity: int | None, owner: bool) -> None:
        super().__init__(capacity, owner)
        self._left: dict[tuple[str, str], Tags] = {}

    def put(self, partition_id: str, sample_ids: Ids, fields: AnyBatch, tags: MaybeTags) -> None:
        left = [self._left.pop((partition_id, sample_id), {}) for sample_id in sample_ids]
        super().put(partition_id, sample_ids, fields, left if tags is None and any(left) else tags)

    def clear(self, partition_id: str, sample_ids: Ids | None) -> None:
        with self._locked() as index:
            for row in rows_in(index, partition_id, sample_ids):
                if row.fields:
                    self._left[partition_id, row.sample_id] = row.tags
        super().clear(partition_id, sample_ids)
